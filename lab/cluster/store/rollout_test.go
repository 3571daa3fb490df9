// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// conditions returns a Deployment's conditions, in words.
func conditions(d *appsv1.Deployment) string {
	out := ""
	for _, c := range d.Status.Conditions {
		out += fmt.Sprintf("%s=%s %s ", c.Type, c.Status, c.Reason)
	}
	return out
}

func TestDeploymentConditions(t *testing.T) {
	now := epoch
	s := New(Config{Now: func() time.Time { return now }})
	apply(t, s, newNode("n1", ""), newDeployment("web", 4))
	const (
		starting  = "Available=False MinimumReplicasUnavailable Progressing=True ReplicaSetUpdated "
		available = "Available=True MinimumReplicasAvailable Progressing=True ReplicaSetUpdated "
		complete  = "Available=True MinimumReplicasAvailable Progressing=True NewReplicaSetAvailable "
	)
	check := func(when, want string, since time.Time) {
		t.Helper()
		d := get[*appsv1.Deployment](t, s, "web")
		if got := conditions(d); got != want {
			t.Errorf("%s: got %s, want %s", when, got, want)
		}
		if c := d.Status.Conditions[0]; !c.LastTransitionTime.Time.Equal(since) {
			t.Errorf("%s: available or not since %s, want %s", when, c.LastTransitionTime, since)
		}
	}
	check("at the start", starting, epoch)
	// 25% of 4 may lack.
	for i, want := range []string{starting, starting, available, complete} {
		now = now.Add(time.Minute)
		report(t, s, podNames(s)[i], true, fmt.Sprintf("10.244.1.%d", i+1))
		since := epoch
		if i >= 2 {
			since = epoch.Add(3 * time.Minute)
		}
		check(fmt.Sprintf("with %d pods", i+1), want, since)
	}
}

func TestMaxUnavailable(t *testing.T) {
	rolling := func(unavailable, surge string) appsv1.DeploymentStrategy {
		return appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: ptr.To(intstr.Parse(unavailable)), MaxSurge: ptr.To(intstr.Parse(surge)),
			},
		}
	}
	for _, c := range []struct {
		replicas int32
		strategy appsv1.DeploymentStrategy
		want     int32
	}{
		{2, rolling("25%", "25%"), 0},
		{4, rolling("25%", "25%"), 1},
		{2, rolling("3", "0"), 2},
		{2, rolling("0", "0"), 1},
		{2, rolling("many", "0"), 1},
		{0, rolling("1", "1"), 0},
		{2, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, 0},
	} {
		d := newDeployment("web", c.replicas)
		d.Spec.Strategy = c.strategy
		if got := maxUnavailable(d); got != c.want {
			t.Errorf("%d replicas, %+v: got %d, want %d", c.replicas, c.strategy, got, c.want)
		}
	}
}
