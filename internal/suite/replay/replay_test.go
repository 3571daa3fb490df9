// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/replay"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/scenarios"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// What is printed is what a strict decoder takes and an API server accepts.
func TestEveryScenarioCanBeReplayed(t *testing.T) {
	for _, s := range allScenarios(t) {
		var b bytes.Buffer
		if err := replay.Write(&b, s); err != nil {
			t.Errorf("%s: %v", s.ID, err)
			continue
		}
		objects, err := manifest.Decode(s.ID, b.Bytes())
		if err != nil {
			t.Errorf("%s: %v\n%s", s.ID, err, b.String())
			continue
		}
		if err := store.New(store.Config{Stack: lab.Dual}).Apply(append(nodes(), objects...)...); err != nil {
			t.Errorf("%s: %v\n%s", s.ID, err, b.String())
		}
	}
}

func nodes() (out []store.Object) {
	for _, name := range engine.NodeNames() {
		out = append(out, &corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		})
	}
	return out
}

func TestPodsServeAndStandOnRealNodes(t *testing.T) {
	s := spec.Scenario{
		ID: "some-row", Why: "A pod answers.", Priority: spec.P1,
		Given: []store.Object{
			fixture.Pod("a", "n2", fixture.UDP(53), fixture.Named("web", 8080)), fixture.Pod("b", "n1"), fixture.Service("web"),
		},
		Steps: []spec.Step{{Name: "it serves", Rows: []spec.Row{{From: "b", To: spec.ClusterIPOf("web", 80),
			Servers: []string{"a"}, Times: 3}}}},
	}
	var b bytes.Buffer
	if err := replay.Write(&b, s, "worker-1", "worker-2"); err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Decode("replay", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			pods[p.Name] = p
		}
		if o.GetNamespace() != "some-row" && o.GetName() != "some-row" {
			t.Errorf("%s is in namespace %q", o.GetName(), o.GetNamespace())
		}
	}
	a, client := pods["a"], pods["b"]
	if a == nil || client == nil {
		t.Fatalf("pods a and b are not both in\n%s", b.String())
	}
	if a.Spec.NodeName != "worker-2" || client.Spec.NodeName != "worker-1" {
		t.Errorf("a is on %s, b on %s", a.Spec.NodeName, client.Spec.NodeName)
	}
	if len(a.Spec.Containers) != 2 || !strings.HasPrefix(a.Spec.Containers[0].Args[0], "UDP6-LISTEN:53,") ||
		!strings.HasPrefix(a.Spec.Containers[1].Args[0], "TCP6-LISTEN:8080,") || a.Spec.Containers[1].Ports[0].Name != "web" {
		t.Errorf("a's containers: %+v", a.Spec.Containers)
	}
	if !slices.Equal(client.Spec.Containers[0].Command, []string{"sleep", "infinity"}) {
		t.Errorf("b's container: %+v", client.Spec.Containers[0])
	}
	for _, want := range []string{"# A pod answers.", "# step 1: it serves", "#   b -> ", " ×3: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func allScenarios(t *testing.T) []spec.Scenario {
	t.Helper()
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
