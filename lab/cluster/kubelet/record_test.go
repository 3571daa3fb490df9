// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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
