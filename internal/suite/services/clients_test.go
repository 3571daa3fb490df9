// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab"
)

// A client that asks a Service in two ways with different endpoints may be remembered with either.
func TestUnstick(t *testing.T) {
	ask := func(client, service string, f lab.Family, servers ...string) question {
		return question{from: sender{name: client}, to: door{service: service}, family: f, servers: servers,
			answer: oracle.Answer{Verdict: oracle.Served, Sticky: true}}
	}
	asked := []question{
		ask("c1", "web", lab.V4, "a1", "a2"), ask("c1", "web", lab.V4, "a2"), // split
		ask("c1", "web", lab.V6, "a1", "a2"), ask("c2", "web", lab.V4, "a1", "a2"), ask("c1", "db", lab.V4, "a2"),
		ask("c2", "web", lab.V4, "a1", "a2"), ask("c2", "web", lab.V4),
	}
	unstick(asked)
	for i, q := range asked {
		if want := i > 1; q.answer.Sticky != want {
			t.Errorf("question %d of %s: sticky %t, want %t", i, q.from.name, q.answer.Sticky, want)
		}
	}
}

// The kernel forgets UDP flows that are silent for 30 seconds, and no TCP connection.
func TestFlowsThatMayBeForgotten(t *testing.T) {
	for _, c := range []struct {
		protocol corev1.Protocol
		silent   time.Duration
		want     bool
	}{
		{corev1.ProtocolUDP, 10 * time.Second, false},
		{corev1.ProtocolUDP, 30 * time.Second, true},
		{corev1.ProtocolTCP, time.Hour, false},
	} {
		f := flow{used: time.Now().Add(-c.silent)}
		f.to.protocol = c.protocol
		if got := f.mayBeForgotten(); got != c.want {
			t.Errorf("%s, silent for %s: %t, want %t", c.protocol, c.silent, got, c.want)
		}
	}
}
