// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/machine"
)

// newTimedStore returns a store with the node n1 and a clock that the test moves.
func newTimedStore(t *testing.T) (*Store, *testclock.FakeClock) {
	t.Helper()
	clock := testclock.NewFakeClock(epoch)
	s := New(Config{Clock: clock})
	apply(t, s, newNode("n1", ""))
	return s, clock
}

// await waits until a timer of the store has brought what is wanted.
func await(t *testing.T, s *Store, what string, wanted func() bool) {
	t.Helper()
	limit := time.After(machine.Limit(10 * time.Second))
	for {
		revision := s.Snapshot().Revision
		if wanted() {
			return
		}
		select {
		case <-s.Changed(revision):
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

func TestMinReadySeconds(t *testing.T) {
	s, clock := newTimedStore(t)
	d := newDeployment("web", 2)
	d.Spec.MinReadySeconds = 5
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: app("db")}, MinReadySeconds: 3,
		Template: newDeployment("db", 1).Spec.Template,
	}}
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: app("agent")}, MinReadySeconds: 4,
		Template: newDeployment("agent", 1).Spec.Template,
	}}
	apply(t, s, d, set, agent)
	settled(t, s, func() {})
	if st := get[*appsv1.Deployment](t, s, "web").Status; st.ReadyReplicas != 2 || st.AvailableReplicas != 0 {
		t.Errorf("status %+v", st)
	}
	if exists(s, KindPod, "db-1") {
		t.Error("db-1 comes before db-0 is available")
	}
	clock.Step(3 * time.Second)
	await(t, s, "db-1", func() bool { return exists(s, KindPod, "db-1") })
	clock.Step(time.Second)
	await(t, s, "agent available", func() bool {
		return get[*appsv1.DaemonSet](t, s, "agent").Status.NumberAvailable == 1
	})
	if n := get[*appsv1.Deployment](t, s, "web").Status.AvailableReplicas; n != 0 {
		t.Errorf("%d replicas are available too early", n)
	}
	clock.Step(time.Second)
	await(t, s, "web available", func() bool {
		return strings.Contains(conditions(get[*appsv1.Deployment](t, s, "web")), "NewReplicaSetAvailable")
	})
}

func TestProgressDeadline(t *testing.T) {
	s, clock := newTimedStore(t)
	d := newDeployment("web", 2)
	d.Spec.ProgressDeadlineSeconds = ptr.To[int32](60)
	apply(t, s, d)
	clock.Step(50 * time.Second)
	report(t, s, s.Snapshot().Pods[0].Name, true, "10.244.1.1")
	clock.Step(50 * time.Second)
	late := func() bool {
		return strings.Contains(conditions(get[*appsv1.Deployment](t, s, "web")), "ProgressDeadlineExceeded")
	}
	if err := s.Do(func(tx *Tx) error { tx.work[KindDeployment][Key{"default", "web"}] = struct{}{}; return nil }); err != nil {
		t.Fatal(err)
	}
	if late() {
		t.Error("it is late although a pod became ready 50 s ago")
	}
	clock.Step(10 * time.Second)
	await(t, s, "ProgressDeadlineExceeded", late)
	report(t, s, s.Snapshot().Pods[1].Name, true, "10.244.1.2")
	if c := conditions(get[*appsv1.Deployment](t, s, "web")); !strings.Contains(c, "NewReplicaSetAvailable") {
		t.Errorf("conditions %s", c)
	}
	clock.Step(time.Hour)
	d.Spec.Template.Spec.Containers[0].Image = "web:2"
	apply(t, s, d)
	if late() {
		t.Error("a new rollout is late at once")
	}
	clock.Step(time.Minute)
	await(t, s, "ProgressDeadlineExceeded", late)
	d.Spec.Template.Spec.Containers[0].Image = "web:3"
	apply(t, s, d)
	if late() {
		t.Error("the rollout after one that was late is late at once")
	}
}

func TestTimesOfJobs(t *testing.T) {
	s, clock := newTimedStore(t)
	j := newJob("sum", 1, 1)
	j.Spec.BackoffLimit = ptr.To[int32](6)
	j.Spec.TTLSecondsAfterFinished = ptr.To[int32](30)
	j.Spec.ActiveDeadlineSeconds = ptr.To[int64](100)
	apply(t, s, j)
	pods := func() int { return len(those(s.Snapshot().Pods, isActive)) }
	for i, pause := range []time.Duration{10 * time.Second, 20 * time.Second} {
		end(t, s, those(s.Snapshot().Pods, isActive)[0].Name, corev1.PodFailed)
		if pods() != 0 {
			t.Errorf("there is another pod at once after failure %d", i+1)
		}
		clock.Step(pause)
		await(t, s, "another pod", func() bool { return pods() == 1 })
	}
	clock.Step(70 * time.Second)
	await(t, s, "DeadlineExceeded", func() bool {
		return strings.Contains(jobConditions(t, s, "sum"), string(batchv1.JobFailed)) && pods() == 0
	})
	clock.Step(30 * time.Second)
	await(t, s, "the end of the Job", func() bool {
		return !exists(s, KindJob, "sum") && len(s.Snapshot().Pods) == 0
	})
}
