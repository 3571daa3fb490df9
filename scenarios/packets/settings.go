// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
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

// configuredStreams has a UDP flow with requests and answers. The kernel takes it for a stream after two seconds.
func configuredStreams() spec.Scenario {
	c := Configured()
	return spec.Scenario{
		ID: "ct-udp-stream-configured", Cluster: c,
		Needs: []spec.Feature{spec.ClusterIP, spec.KernelNAT, spec.ConntrackSettings},
		Given: []store.Object{Pod("c1", "n1"), Pod("d2", "n2", App("dns"), UDP(5353)), Service("dns", UDPPort(53, 5353))},
		Steps: []spec.Step{{
			Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Servers: []string{"d2"}}},
			Check: EachFamily(func(ctx context.Context, w spec.World, family lab.Family) error {
				return streamRemembered(ctx, w, family, c.Proxy.Conntrack)
			}),
		}},
	}
}

// streamRemembered sends requests of one flow until n1 remembers it for longer than a flow without answers.
func streamRemembered(ctx context.Context, w spec.World, family lab.Family, want spec.ConntrackConfig) error {
	socket := OpenSocket(ctx, w, "c1", family)
	defer socket.Close()
	to := spec.Must(w.Resolve(spec.ClusterIPOf("dns", 53), family, "udp"))
	var found observe.Flow
	err := Eventually(ctx, func(context.Context) error {
		spec.MustDo(socket.Send(to, "stream"))
		if answers := spec.Must(socket.Receive(1)); len(answers) == 0 {
			return fmt.Errorf("%s does not answer", to)
		}
		var err error
		found, _, err = w.Flow("n1", "udp", observe.Tuple{Src: socket.Addr(), Dst: to})
		spec.MustDo(err)
		if found.Timeout <= want.UDP {
			return fmt.Errorf("n1 remembers a UDP flow with answers for %s", found.Timeout)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if found.Timeout > want.UDPStream || found.Timeout < want.UDPStream-20*time.Second {
		return fmt.Errorf("n1 remembers a UDP flow with answers for %s, not for %s", found.Timeout, want.UDPStream)
	}
	return nil
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
		Steps: []spec.Step{{Check: behindEachService("c1", wantDelivered)},
			{Name: "no rule against INVALID packets", Check: noRuleAgainstInvalid},
			{Name: "connection tracking takes no segment for INVALID", Check: tracksLiberally}},
	}
}

// tracksLiberally looks at the sysctl on n1. IPVS delivers segments that connection tracking takes for INVALID, too.
func tracksLiberally(_ context.Context, w spec.World) error {
	if differ := spec.Must(spec.Must(w.Host("n1")).NS.DifferingSettings(liberalTracking)); len(differ) > 0 {
		return fmt.Errorf("n1: these settings are otherwise: %v", differ)
	}
	return nil
}

// wantDelivered wants the client to get the segment.
func wantDelivered(s stray) error {
	if len(s.got) == 0 {
		return errors.New("the client does not get the segment")
	}
	return nil
}

// configuredBit has a Service whose clients are masqueraded only if somebody else marks their packets. Nobody but the
// scenario uses the router as a client.
func configuredBit() spec.Scenario {
	c := Configured()
	marked := func(name string, mark uint32, seenAs spec.Peer) spec.Step {
		return spec.Step{Name: name, Check: func(ctx context.Context, w spec.World) error {
			defer markOnNode(ctx, w, "router", mark)()
			return w.Expect(ctx, spec.Row{From: "router", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"b1"},
				SeenAs: seenAs})
		}}
	}
	return spec.Scenario{
		ID: "masq-bit-configured", Cluster: c,
		Needs: []spec.Feature{spec.NodePort, spec.ETPLocal, spec.MasqueradeMark, spec.MasqueradeBit},
		Given: []store.Object{Backend("b1", "n1"), Service("web", NodePort(), ETPLocal())},
		Steps: []spec.Step{
			marked("the bit that is the default", spec.ProxyConfig{}.MasqueradeMark(), spec.ClientAddr()),
			marked("the bit that is configured", c.Proxy.MasqueradeMark(), spec.NodeAddr("n1")),
		},
	}
}

// configuredMetrics asks for two pages of the server for metrics.
func configuredMetrics() spec.Scenario {
	c := Configured()
	return spec.Scenario{
		ID: "proxier-metrics", Cluster: c, Needs: []spec.Feature{spec.ClusterIP, spec.Metrics}, Given: NearAndFar(),
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			mode := ""
			for _, f := range []spec.Feature{spec.IPTables, spec.NFTables, spec.IPVS} {
				if w.Features()[f] {
					mode = string(f)
				}
			}
			for path, want := range map[string]string{"/metrics": "# TYPE ", "/proxyMode": mode} {
				page := spec.Try(AskHealth(ctx, w, "n1", path, c.Proxy.MetricsAddress))
				if page.Code != http.StatusOK || !bytes.Contains(page.Body, []byte(want)) {
					return fmt.Errorf("n1 answers %d to %s, without %q: %.80q", page.Code, path, want, page.Body)
				}
			}
			return nil
		}}},
	}
}

// configuredByFile has the settings of Configured in a file.
func configuredByFile() spec.Scenario {
	c := Configured()
	c.Proxy.ConfigFile = true
	nodePort := spec.NodePortAt("n1", "web", 80)
	return spec.Scenario{
		ID: "config-file-obeyed", Cluster: c,
		Needs: []spec.Feature{
			spec.ClusterIP, spec.NodePort, spec.SourceAddress, spec.MasqueradeAll, spec.PrimaryNodePorts, spec.Metrics,
			spec.ConfigFile,
		},
		Given: []store.Object{Pod("c1", "n1"), Backend("b1", "n1"), Service("web", NodePort())},
		Steps: []spec.Step{{
			Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"b1"}, SeenAs: spec.NodeAddr("n1")},
				{From: "client", To: nodePort, Servers: []string{"b1"}},
				{From: "client", To: nodePort.AtAddr(spec.Secondary), Want: spec.Refused},
			},
			Check: configuredMetrics().Steps[0].Check,
		}},
	}
}
