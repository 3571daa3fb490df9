// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// told takes the Events that wait for a reader: reason, object and message, with the names of pods cut.
func told(t *testing.T, s *Store) []string {
	t.Helper()
	var out []string
	for _, e := range s.records.take() {
		out = append(out, fmt.Sprintf("%s %s/%s: %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
	}
	return out
}

func TestEventsOfControllers(t *testing.T) {
	s := newTestStore(t, Config{Events: true}, "n1")
	d := newDeployment("web", 1)
	apply(t, s, d)
	pods := s.Snapshot().Pods
	set := pods[0].OwnerReferences[0].Name
	checkSame(t, "events", told(t, s), []string{
		"ScalingReplicaSet Deployment/web: Scaled up replica set " + set + " from 0 to 1",
		"SuccessfulCreate ReplicaSet/" + set + ": Created pod: " + pods[0].Name,
		"Scheduled Pod/" + pods[0].Name + ": Successfully assigned default/" + pods[0].Name + " to n1",
	})
	d.Spec.Replicas = ptr.To[int32](0)
	apply(t, s, d)
	checkSame(t, "events", told(t, s), []string{
		"ScalingReplicaSet Deployment/web: Scaled down replica set " + set + " from 1 to 0",
		"SuccessfulDelete ReplicaSet/" + set + ": Deleted pod: " + pods[0].Name,
	})
	j := newJob("sum", 1, 1)
	j.Spec.BackoffLimit = ptr.To[int32](0)
	apply(t, s, j)
	told(t, s)
	end(t, s, s.Snapshot().Pods[0].Name, corev1.PodFailed)
	checkSame(t, "events", told(t, s), []string{
		batchv1.JobReasonBackoffLimitExceeded + " Job/sum: Job has reached the specified backoff limit",
	})
}

func TestEventsOfWhatIsNotDone(t *testing.T) {
	s := newTestStore(t, Config{Events: true}, "n1")
	refused := errors.New("refused")
	err := s.Do(func(tx *Tx) error {
		if err := tx.Apply(newDeployment("web", 1)); err != nil {
			t.Error(err)
		}
		tx.say(newDeployment("web", 1), "Test", "this is not committed")
		return refused
	})
	if !errors.Is(err, refused) {
		t.Error(err)
	}
	checkSame(t, "events", told(t, s), nil)
	quiet := newTestStore(t, Config{}, "n1")
	apply(t, quiet, newDeployment("web", 1))
	quiet.Record(Notice{About: newDeployment("web", 1), Reason: "Test"})
	checkSame(t, "events", told(t, quiet), nil)
}

func TestRecords(t *testing.T) {
	s := newTestStore(t, Config{Events: true})
	about := newNode("n1", "")
	for i := range maxRecords + 10 {
		s.Record(Notice{About: about, Reason: "Test", Message: fmt.Sprint(i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	for e := range s.Records(ctx) {
		if got = append(got, e.Message); len(got) == maxRecords {
			cancel()
		}
	}
	if got[0] != "10" || got[len(got)-1] != fmt.Sprint(maxRecords+9) {
		t.Errorf("from %s to %s", got[0], got[len(got)-1])
	}
	same, other := Notice{About: about, Reason: "A"}, Notice{About: about, Reason: "A", Part: "spec"}
	names := []string{same.Event(metav1.Now()).Name, same.Event(metav1.Now()).Name, other.Event(metav1.Now()).Name}
	if names[0] != names[1] || slices.Contains(names[:2], names[2]) {
		t.Errorf("names %v", names)
	}
}
