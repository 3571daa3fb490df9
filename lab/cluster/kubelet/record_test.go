// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// told reads Events until the wanted ones have come, which begin with these texts.
func (w *world) told(want ...string) {
	w.Helper()
	var got []string
	for e := range w.Store().Records(w.ctx) {
		text := fmt.Sprintf("%s %s %s %s: %s", e.Type, e.InvolvedObject.Name, e.InvolvedObject.FieldPath, e.Reason, e.Message)
		got = append(got, text)
		want = slices.DeleteFunc(want, func(w string) bool { return strings.HasPrefix(text, w) })
		if len(want) == 0 {
			return
		}
	}
	w.Fatalf("no Events %q among\n%s", want, strings.Join(got, "\n"))
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.pod("lost", "{containers: [{name: c, image: none/such}]}")
	w.pod("wait", "{containers: [{name: c, image: busybox, command: [sh], envFrom: [{configMapRef: {name: none}}]}]}")
	w.pod("sick", "{containers: [{name: c, image: busybox, command: [sleep, inf], "+
		"livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 1}}]}")
	w.pod("mad", "{initContainers: [{name: i, image: busybox, command: [sh, -c, exit 1]}], containers: [{name: c, image: pause}]}")
	w.pod("gone", "{terminationGracePeriodSeconds: 1, volumes: [{name: v, secret: {secretName: none}}], "+
		"containers: [{name: c, image: pause}]}")
	w.told(
		`Normal sick spec.containers{c} Pulled: Container image "busybox" already present on machine`,
		"Normal sick spec.containers{c} Created: Created container: c",
		"Normal sick spec.containers{c} Started: Started container c",
		"Warning sick spec.containers{c} Unhealthy: Liveness probe failed: exit code 1",
		"Normal sick spec.containers{c} Killing: Container c failed liveness probe, will be restarted",
		`Warning lost spec.containers{c} Failed: Failed to pull image "none/such": image "none/such" is not known`,
		"Warning lost spec.containers{c} Failed: Error: ErrImagePull",
		`Warning wait spec.containers{c} Failed: Error: configmap "none" not found`,
		"Warning mad spec.initContainers{i} BackOff: Back-off restarting failed container i in pod mad_default(",
		`Warning gone  FailedMount: MountVolume.SetUp failed for volume "v": secret "none" not found`,
	)
	w.pod("ends", "{terminationGracePeriodSeconds: 1, containers: [{name: c, image: pause}]}")
	w.awaitReady("ends")
	if err := w.Store().Delete("Pod", "default", "ends"); err != nil {
		t.Fatal(err)
	}
	w.told("Normal ends spec.containers{c} Killing: Stopping container c")
}

func TestActiveDeadline(t *testing.T) {
	w := newWorld(t)
	w.pod("late", "{activeDeadlineSeconds: 1, terminationGracePeriodSeconds: 1, containers: [{name: c, image: busybox, command: [sleep, inf]}]}")
	if p := w.awaitPhase("late", "Failed"); p.Status.Reason != "DeadlineExceeded" {
		t.Errorf("status %+v", p.Status)
	}
}

func TestEviction(t *testing.T) {
	w := newWorld(t)
	const limits = "resources: {limits: {ephemeral-storage: 1Mi}}"
	w.pod("greedy", "{containers: [{name: c, image: busybox, "+limits+
		", command: [sh, -c, 'head -c 1500000 /dev/zero >/file; sleep inf']}]}")
	w.pod("modest", "{containers: [{name: c, image: busybox, "+limits+
		", command: [sh, -c, 'head -c 500000 /dev/zero >/file; sleep inf']}]}")
	p := w.awaitPhase("greedy", "Failed")
	if p.Status.Reason != "Evicted" || !strings.Contains(p.Status.Message, "storage limit \"1Mi\"") ||
		!condition(p, corev1.DisruptionTarget) {
		t.Errorf("status %+v", p.Status)
	}
	w.told(`Warning greedy  Evicted: Container c exceeded its local ephemeral storage limit "1Mi". `)
	w.awaitReady("modest")
}

func TestReadinessGates(t *testing.T) {
	w := newWorld(t)
	w.pod("gated", "{readinessGates: [{conditionType: example.org/go}], containers: [{name: c, image: pause}]}")
	w.awaitPhase("gated", "Running")
	const gate = "example.org/go"
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
		err := store.UpdateStatus(w.Store(), "default", "gated", func(p *corev1.Pod) {
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate })
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: gate, Status: status})
		})
		if err != nil {
			t.Fatal(err)
		}
		w.await("gated", "as its gate", func(p *corev1.Pod) bool {
			return condition(p, corev1.PodReady) == (status == corev1.ConditionTrue)
		})
	}
}
