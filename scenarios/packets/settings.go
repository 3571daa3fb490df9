// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// configuredTimeouts is ct-timeouts with the values of an administrator, and with UDP.
func configuredTimeouts() spec.Scenario {
	c := Configured()
	values := c.Proxy.Conntrack
	return spec.Scenario{
		ID: "ct-timeouts-configured", Cluster: c,
		Needs: []spec.Feature{spec.ClusterIP, spec.ConntrackTimeouts, spec.ConntrackSettings},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("s2", "n2", App("web")), Service("web"), Pod("d2", "n2", App("dns"), UDP(5353)),
			Service("dns", UDPPort(53, 5353)),
		},
		Steps: []spec.Step{
			{Name: "TCP", Check: EachFamily(halfClose(values.TCPEstablished, values.TCPCloseWait))},
			{Name: "UDP", Check: EachFamily(func(ctx context.Context, w spec.World, family lab.Family) error {
				return udpRemembered(ctx, w, family, values.UDP)
			})},
		},
	}
}

// udpRemembered wants n1 to remember an answered request of c1 for a time. (The kernel takes a flow for a stream only
// after two seconds.)
func udpRemembered(ctx context.Context, w spec.World, family lab.Family, want time.Duration) error {
	socket := OpenSocket(ctx, w, "c1", family)
	defer socket.Close()
	to := spec.Must(w.Resolve(spec.ClusterIPOf("dns", 53), family, "udp"))
	spec.MustDo(socket.Send(to, "timeout"))
	if answers := spec.Must(socket.Receive(1)); len(answers) == 0 {
		return fmt.Errorf("%s does not answer", to)
	}
	found, ok, err := w.Flow("n1", "udp", observe.Tuple{Src: socket.Addr(), Dst: to})
	spec.MustDo(err)
	if !ok {
		return fmt.Errorf("n1 does not track the flow to %s", to)
	}
	if found.Timeout > want || found.Timeout < want-20*time.Second {
		return fmt.Errorf("n1 remembers a UDP flow for %s, not for %s", found.Timeout, want)
	}
	return nil
}

// configuredLiberal is ct-be-liberal where the proxier makes connection tracking liberal.
func configuredLiberal() spec.Scenario {
	return spec.Scenario{
		ID: "ct-be-liberal-configured", Cluster: Configured(),
		Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT, spec.ConntrackSettings}, Given: NearAndFar(),
		Steps: []spec.Step{{Check: behindEachService(wantDelivered)},
			{Name: "no rule against INVALID packets", Check: noRuleAgainstInvalid}},
	}
}

// wantDelivered wants the client to get the segment.
func wantDelivered(s stray) error {
	if len(s.got) == 0 {
		return errors.New("the client does not get the segment")
	}
	return nil
}
