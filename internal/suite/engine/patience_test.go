// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/proxiers/ipvs"
	"github.com/viplab/viplab/suite/spec"
)

// Nodes remember idle UDP flows for an hour, in IPVS as in connection tracking, and leave the rest as the kernel has
// it.
func TestIdleFlowsAreRemembered(t *testing.T) {
	s := simple("idle-flows")
	s.Steps = []spec.Step{{Check: func(_ context.Context, w spec.World) error {
		var out bytes.Buffer
		list := exec.Command("ipvsadm", "--list", "--timeout")
		list.Stdout, list.Stderr = &out, &out
		n1 := w.Lab().Node("n1")
		if err := n1.NS.Run(list); err != nil {
			return fmt.Errorf("%w: %s", err, &out)
		}
		if want := "Timeout (tcp tcpfin udp): 900 120 3600\n"; out.String() != want {
			t.Errorf("IPVS: %q, want %q", &out, want)
		}
		if got, err := n1.NS.Sysctl("net.netfilter.nf_conntrack_udp_timeout"); err != nil || got != "3600" {
			t.Errorf("connection tracking: %s, %v", got, err)
		}
		return nil
	}}}
	switch r := run(t, engine.Options{Proxiers: []spec.Proxier{ipvs.New()},
		Scenarios: []spec.Scenario{s}})[s.ID]; r.Verdict {
	case spec.Skip:
		t.Skip(r.Reason)
	case spec.Pass:
	default:
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
}
