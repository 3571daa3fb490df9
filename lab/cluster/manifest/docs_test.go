// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// The Job that docs/ci.md shows is admitted, and its two parts speak of the same number of shards.
func TestTheJobOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/ci/job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, unknown, err := DecodeKnown("job.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range unknown {
		if !strings.Contains(u.Error(), "PersistentVolumeClaim") { // a lab has no volumes that stay
			t.Error(u)
		}
	}
	if err := store.New(store.Config{}).Apply(objects...); err != nil {
		t.Fatal(err)
	}
	jobs := map[string]*batchv1.Job{}
	for _, o := range objects {
		if j, ok := o.(*batchv1.Job); ok {
			jobs[j.Name] = j
		}
	}
	judge, merge := jobs["viplab"], jobs["viplab-merge"]
	if judge == nil || merge == nil || *judge.Spec.CompletionMode != batchv1.IndexedCompletion {
		t.Fatalf("jobs %v", jobs)
	}
	script := func(j *batchv1.Job) string { return strings.Join(j.Spec.Template.Spec.Containers[0].Command, " ") }
	if want := fmt.Sprintf("--shard auto/%d ", *judge.Spec.Completions); !strings.Contains(script(judge), want) {
		t.Errorf("no %s in %s", want, script(judge))
	}
	var folders, numbers []string
	for i := range *judge.Spec.Completions {
		folders = append(folders, fmt.Sprint("/reports/", i))
		numbers = append(numbers, fmt.Sprint(i))
	}
	if want := "viplab merge " + strings.Join(folders, " ") + " "; !strings.Contains(script(merge), want) {
		t.Errorf("no %q in %s", want, script(merge))
	}
	if want := "for shard in " + strings.Join(numbers, " ") + "; do"; !strings.Contains(script(merge), want) {
		t.Errorf("no %q in %s", want, script(merge))
	}
}
