// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"

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
