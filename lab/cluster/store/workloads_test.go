// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// runAll plays kubelet once: what is new becomes ready, and what is being deleted goes. It reports whether that changed
// anything.
func runAll(t *testing.T, s *Store) bool {
	t.Helper()
	revision := s.Snapshot().Revision
	for i, p := range s.Snapshot().Pods {
		switch {
		case isOver(p) || p.Spec.NodeName == "":
		case p.DeletionTimestamp != nil:
			if err := s.RemovePod(p.Namespace, p.Name, p.UID); err != nil {
				t.Fatal(err)
			}
		case exists(s, KindPod, p.Name):
			if p := get[*corev1.Pod](t, s, p.Name); p.DeletionTimestamp == nil && !isReady(p) {
				report(t, s, p.Name, true, fmt.Sprintf("10.244.1.%d", i+1))
			}
		}
	}
	return s.Snapshot().Revision != revision
}

func settled(t *testing.T, s *Store, check func()) {
	t.Helper()
	for range 100 {
		check()
		if !runAll(t, s) {
			return
		}
	}
	t.Fatal("it does not settle")
}

func images(s *Store) map[string]int {
	out := map[string]int{}
	for _, p := range s.Snapshot().Pods {
		if p.DeletionTimestamp == nil {
			out[p.Spec.Containers[0].Image]++
		}
	}
	return out
}

func TestRollout(t *testing.T) {
	for _, c := range []struct {
		graceful           bool
		surge, unavailable string
		most, least        int
	}{
		{false, "25%", "25%", 5, 3}, {true, "25%", "25%", 5, 3}, {true, "0", "1", 4, 3}, {true, "2", "0", 6, 4},
		{false, "100%", "100%", 8, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			s := newTestStore(t, Config{GracefulDeletion: c.graceful}, "n1", "n2")
			d := newDeployment("web", 4)
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.Parse(c.surge)), MaxUnavailable: ptr.To(intstr.Parse(c.unavailable)),
			}
			apply(t, s, d)
			settled(t, s, func() {})
			for i, image := range []string{"web:2", "web:3", "web:1"} {
				d.Spec.Template.Spec.Containers[0].Image = image
				apply(t, s, d)
				settled(t, s, func() {
					pods := those(s.Snapshot().Pods, isActive)
					if n := len(pods); n > c.most {
						t.Errorf("%d pods, want at most %d", n, c.most)
					}
					if n := int(count(pods, isReady)); n < c.least {
						t.Errorf("%d pods are ready, want at least %d", n, c.least)
					}
				})
				checkSame(t, "images", images(s), map[string]int{image: 4})
				now := get[*appsv1.Deployment](t, s, "web")
				if now.Status.UpdatedReplicas != 4 || now.Status.AvailableReplicas != 4 || now.Status.Replicas != 4 ||
					!strings.Contains(conditions(now), "NewReplicaSetAvailable") {
					t.Errorf("status %+v", now.Status)
				}
				if got := now.Annotations[revisionAnnotation]; got != fmt.Sprint(i+2) {
					t.Errorf("revision %s, want %d", got, i+2)
				}
			}
			if n := len(s.Snapshot().Objects(KindReplicaSet)); n != 3 { // the first has become the fourth
				t.Errorf("%d ReplicaSets, want 3", n)
			}
			d.Spec.RevisionHistoryLimit = ptr.To[int32](1)
			apply(t, s, d)
			if n := len(s.Snapshot().Objects(KindReplicaSet)); n != 2 {
				t.Errorf("%d ReplicaSets, want 2", n)
			}
		})
	}
}

func TestRecreate(t *testing.T) {
	s := newTestStore(t, Config{GracefulDeletion: true}, "n1")
	d := newDeployment("web", 2)
	d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	apply(t, s, d)
	settled(t, s, func() {})
	d.Spec.Template.Spec.Containers[0].Image = "web:2"
	apply(t, s, d)
	settled(t, s, func() {
		both := map[string]bool{}
		for _, p := range s.Snapshot().Pods {
			both[p.Spec.Containers[0].Image] = true
		}
		if len(both) != 1 {
			t.Errorf("images %v at one time", both)
		}
	})
	checkSame(t, "images", images(s), map[string]int{"web:2": 2})
}

func TestPausedDeployment(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	d := newDeployment("web", 2)
	apply(t, s, d)
	settled(t, s, func() {})
	d.Spec.Paused, d.Spec.Replicas = true, ptr.To[int32](3)
	d.Spec.Template.Spec.Containers[0].Image = "web:2"
	apply(t, s, d)
	settled(t, s, func() {})
	checkSame(t, "images while it is paused", images(s), map[string]int{"web:1": 3})
	d.Spec.Paused = false
	apply(t, s, d)
	settled(t, s, func() {})
	checkSame(t, "images", images(s), map[string]int{"web:2": 3})
}

// Pods and ReplicaSets that were orphaned find a new owner.
func TestAdoption(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	apply(t, s, newDeployment("web", 2))
	before := podNames(s)
	deleteWith(t, s, KindDeployment, "web", DeleteOptions{Propagation: metav1.DeletePropagationOrphan})
	apply(t, s, newDeployment("web", 2))
	checkSame(t, "pods", podNames(s), before)
	rs := s.Snapshot().Objects(KindReplicaSet)[0]
	if c := metav1.GetControllerOf(rs); c == nil || c.UID != get[*appsv1.Deployment](t, s, "web").UID {
		t.Errorf("the ReplicaSet is controlled by %v", c)
	}
	deleteWith(t, s, KindReplicaSet, rs.GetName(), DeleteOptions{Propagation: metav1.DeletePropagationOrphan})
	checkSame(t, "pods", podNames(s), before)
}

func TestDaemonSet(t *testing.T) {
	s := newTestStore(t, Config{GracefulDeletion: true}, "n1", "n2")
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: app("agent")}, Template: newDeployment("agent", 1).Spec.Template,
	}}
	apply(t, s, d)
	closed := newNode("n3", "")
	closed.Spec.Unschedulable = true
	tainted := newNode("n4", "")
	tainted.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
	apply(t, s, closed, tainted)
	settled(t, s, func() {})
	nodes := func() (out []string) {
		for _, p := range s.Snapshot().Pods {
			out = append(out, p.Spec.NodeName)
		}
		slices.Sort(out)
		return out
	}
	checkSame(t, "nodes", nodes(), []string{"n1", "n2", "n3"})
	d.Spec.Template.Spec.Containers[0].Image = "web:2"
	apply(t, s, d)
	settled(t, s, func() {
		if n := count(s.Snapshot().Pods, isReady); n < 2 {
			t.Errorf("%d pods are ready, want 2 of 3", n)
		}
	})
	checkSame(t, "images", images(s), map[string]int{"web:2": 3})
	if err := s.Delete(KindNode, "", "n2"); err != nil {
		t.Fatal(err)
	}
	checkSame(t, "nodes", nodes(), []string{"n1", "n3"})
	if st := get[*appsv1.DaemonSet](t, s, "agent").Status; st.DesiredNumberScheduled != 2 || st.NumberReady != 2 ||
		st.UpdatedNumberScheduled != 2 || st.NumberUnavailable != 0 {
		t.Errorf("status %+v", st)
	}
}

func TestStatefulSet(t *testing.T) {
	for _, policy := range []appsv1.PodManagementPolicyType{"OrderedReady", "Parallel"} {
		s := newTestStore(t, Config{GracefulDeletion: true}, "n1")
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](3), ServiceName: "peers", PodManagementPolicy: policy,
			Selector: &metav1.LabelSelector{MatchLabels: app("db")}, Template: newDeployment("db", 1).Spec.Template,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		}}
		set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		apply(t, s, set)
		if n := len(podNames(s)); n != map[appsv1.PodManagementPolicyType]int{"OrderedReady": 1, "Parallel": 3}[policy] {
			t.Errorf("%s: %d pods at first", policy, n)
		}
		settled(t, s, func() {})
		checkSame(t, "pods", podNames(s), []string{"db-0", "db-1", "db-2"})
		p := get[*corev1.Pod](t, s, "db-1")
		if p.Spec.Hostname != "db-1" || p.Spec.Subdomain != "peers" || p.Labels[appsv1.StatefulSetPodNameLabel] != "db-1" ||
			p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-db-1" {
			t.Errorf("got %+v", p)
		}
		set.Spec.Template.Spec.Containers[0].Image = "web:2"
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](1)}
		apply(t, s, set)
		settled(t, s, func() {
			if n := count(s.Snapshot().Pods, isReady); n < 2 {
				t.Errorf("%d pods are ready, want 2 of 3", n)
			}
		})
		checkSame(t, "images", images(s), map[string]int{"web:1": 1, "web:2": 2})
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](0)
		set.Spec.Replicas = ptr.To[int32](2)
		apply(t, s, set)
		settled(t, s, func() {})
		checkSame(t, "pods", podNames(s), []string{"db-0", "db-1"})
		st := get[*appsv1.StatefulSet](t, s, "db").Status
		if st.Replicas != 2 || st.ReadyReplicas != 2 || st.UpdatedReplicas != 2 || st.CurrentRevision != st.UpdateRevision {
			t.Errorf("status %+v", st)
		}
		deleteWith(t, s, KindPod, "db-0", DeleteOptions{})
		settled(t, s, func() {})
		checkSame(t, "pods", podNames(s), []string{"db-0", "db-1"})
	}
}

// A pod that never becomes ready does not keep a StatefulSet from a better template.
func TestStuckStatefulSet(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: app("db")},
		Template: newDeployment("db", 1).Spec.Template,
	}}
	apply(t, s, set)
	set.Spec.Template.Spec.Containers[0].Image = "web:2"
	apply(t, s, set)
	checkSame(t, "images", images(s), map[string]int{"web:2": 1})
}

// end plays kubelet: the containers of a pod have ended.
func end(t *testing.T, s *Store, pod string, phase corev1.PodPhase) {
	t.Helper()
	if err := UpdateStatus(s, "default", pod, func(p *corev1.Pod) { p.Status.Phase = phase }); err != nil {
		t.Fatal(err)
	}
}

func newJob(name string, completions, parallelism int32) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Completions: &completions, Parallelism: &parallelism, BackoffLimit: ptr.To[int32](1),
		Template: newDeployment(name, 1).Spec.Template,
	}}
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return j
}

func jobConditions(t *testing.T, s *Store, name string) (out string) {
	for _, c := range get[*batchv1.Job](t, s, name).Status.Conditions {
		out += string(c.Type) + " "
	}
	return out
}

func TestJob(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	apply(t, s, newJob("sum", 3, 2))
	apply(t, s, newJob("sum", 3, 2)) // again, as kubectl does
	active := func() (out []string) {
		for _, p := range those(s.Snapshot().Pods, isActive) {
			out = append(out, p.Name)
		}
		return out
	}
	for _, want := range []int{2, 2, 1} {
		if got := active(); len(got) != want {
			t.Fatalf("active %v, want %d", got, want)
		}
		end(t, s, active()[0], corev1.PodSucceeded)
	}
	st := get[*batchv1.Job](t, s, "sum").Status
	if st.Succeeded != 3 || st.Active != 0 || st.CompletionTime == nil || jobConditions(t, s, "sum") !=
		"SuccessCriteriaMet Complete " {
		t.Errorf("status %+v", st)
	}
	apply(t, s, newJob("bad", 2, 2))
	end(t, s, active()[0], corev1.PodFailed)
	if n := len(active()); n != 2 {
		t.Errorf("%d active pods after a failure, want 2", n)
	}
	end(t, s, active()[0], corev1.PodFailed)
	if got := jobConditions(t, s, "bad"); got != "FailureTarget Failed " || len(active()) != 0 {
		t.Errorf("conditions %s, active %v", got, active())
	}
	if err := s.Apply(newDeployment("sum", 1), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "always"},
		Spec: batchv1.JobSpec{Template: newDeployment("sum", 1).Spec.Template}}); err == nil ||
		!strings.Contains(err.Error(), `spec.template.spec.restartPolicy: Unsupported value: "Always"`) {
		t.Errorf("a Job that always restarts: %v", err)
	}
}

func TestIndexedJob(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	j := newJob("part", 4, 2)
	j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	apply(t, s, j)
	byIndex := func() map[string]string {
		out := map[string]string{}
		for _, p := range those(s.Snapshot().Pods, isActive) {
			out[p.Spec.Hostname] = p.Name
			if p.Spec.Containers[0].Env[0].Value != p.Labels[batchv1.JobCompletionIndexAnnotation] {
				t.Errorf("got %+v", p)
			}
		}
		return out
	}
	for _, step := range []struct {
		end   string
		phase corev1.PodPhase
		want  []string
		done  string
	}{
		{"part-1", corev1.PodSucceeded, []string{"part-0", "part-2"}, "1"},
		{"part-0", corev1.PodFailed, []string{"part-0", "part-2"}, "1"},
		{"part-2", corev1.PodSucceeded, []string{"part-0", "part-3"}, "1-2"},
		{"part-0", corev1.PodSucceeded, []string{"part-3"}, "0-2"},
		{"part-3", corev1.PodSucceeded, nil, "0-3"},
	} {
		end(t, s, byIndex()[step.end], step.phase)
		checkSame(t, "active", slices.Sorted(maps.Keys(byIndex())), step.want)
		if got := get[*batchv1.Job](t, s, "part").Status.CompletedIndexes; got != step.done {
			t.Errorf("completed %s, want %s", got, step.done)
		}
	}
	if got := jobConditions(t, s, "part"); got != "SuccessCriteriaMet Complete " {
		t.Errorf("conditions %s", got)
	}
}
