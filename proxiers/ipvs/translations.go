// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// Some ports are served by rules of the nat table instead of IPVS, because IPVS cannot keep what the API promises:
//   - UDP. IPVS finds the connection of a reply by the addresses of client and endpoint alone, so a socket that asks
//     two Services with the same endpoint gets answers from the wrong one (kubernetes#90042). And it refuses datagrams
//     larger than an MTU, if they were sized for lo or reassembled on a bridge (__mtu_check_toobig_v6 in
//     net/netfilter/ipvs/ip_vs_xmit.c).
//   - Session affinity. IPVS remembers a client as long as one of its connections, closed ones included, so affinity
//     lasts longer than timeoutSeconds (kubernetes#89358).
//   - External policy Local. All clients of a virtual server share its backends, so those of the cluster would reach
//     local endpoints only (kubernetes#93456).
//
// The virtual servers of these ports have no backends. They refuse new connections if there is no endpoint, and keep
// those that IPVS has served before the Service changed.

// translatesAll reports whether rules serve all frontends of a port.
func translatesAll(p *model.Port) bool { return p.ID.Protocol == corev1.ProtocolUDP || p.Affinity > 0 }

// translatesOutside reports whether rules serve the frontends other than the ClusterIP.
func translatesOutside(p *model.Port) bool { return translatesAll(p) || p.ExternalLocal }

// natTranslations is the index of the only chain in the layout of translations.
const natTranslations = 0

var translationLayout = xtables.Layout{natTranslations: {Table: xtables.NAT, Name: chainTranslations}}

// translator renders the chains of translated ports.
type translator struct {
	dnat.Chains
	// deliver is the mark of packets to external and load balancer addresses that the node delivers to IPVS.
	deliver uint32
}

// chains adds the chains of a port that at least one rule leads to.
func (t translator) chains(f *xtables.Fragment, p *model.Port) {
	inside := translatesAll(p) && len(p.Internal()) > 0
	outside := translatesOutside(p) && p.External() && p.Anywhere
	if !inside && !outside {
		return
	}
	names := dnat.NamesOf(p.ID)
	among, onNode := p.Used()
	cluster, local := xtables.Chain{Name: names.Cluster}, xtables.Chain{Name: names.Local}
	t.Balance(&cluster, p, among)
	t.Balance(&local, p, onNode)
	f.Own(cluster)
	f.Own(local)
	if outside {
		external := t.External(p)
		// The packet leaves the node now. Later ones of the connection do not get the mark.
		external.Rules = slices.Insert(external.Rules, 0, xtables.NewRule(xtables.ClearMark(t.deliver)))
		f.Own(external)
	}
	for _, ep := range p.Reached() {
		f.Own(t.Translate(p, ep))
	}
}
