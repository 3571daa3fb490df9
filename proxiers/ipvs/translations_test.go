// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// TestTranslations: the rules for what IPVS does not serve, and for nothing else.
func TestTranslations(t *testing.T) {
	everything := func(p *model.Port) {
		p.NodePort, p.ExternalIPs, p.LoadBalancerIPs = 30080, addrs("198.51.100.1"), addrs("203.0.113.1")
	}
	local := func(p *model.Port) { everything(p); p.ExternalLocal = true }
	udp := func(p *model.Port) { p.ID.Protocol = corev1.ProtocolUDP }
	unserved := func(p *model.Port) { p.Cluster, p.Local, p.Anywhere = nil, nil, false }
	sticky := func(p *model.Port) { withoutLocal(p); p.Affinity, p.ExternalIPs = affinity, addrs("198.51.100.1") }
	for _, c := range []struct {
		name   string
		change func(*model.Port)
		want   []string
	}{
		{"TCP under policy Cluster", everything, nil},
		{"internal policy Local", func(p *model.Port) { p.InternalLocal = true }, nil},
		{"external policy Local, ClusterIP alone", func(p *model.Port) { p.ExternalLocal = true }, nil},
		{"UDP", udp, []string{
			"TRANSLATIONS -m udp -p udp -d 10.96.0.10 --dport 80 -j SVC",
			"SVC -m statistic --mode random --probability 0.5000000000 -j NEAR", "SVC -j FAR",
			"NEAR -s 10.244.1.5 -j KUBE-MARK-MASQ", "NEAR -m udp -p udp -j DNAT --to-destination 10.244.1.5:8080",
			"FAR -s 10.244.2.7 -j KUBE-MARK-MASQ", "FAR -m udp -p udp -j DNAT --to-destination 10.244.2.7:8080",
		}},
		{"UDP, internal policy Local", func(p *model.Port) { udp(p); p.InternalLocal = true }, []string{
			"TRANSLATIONS -m udp -p udp -d 10.96.0.10 --dport 80 -j SVL", "SVL -j NEAR",
			"NEAR -s 10.244.1.5 -j KUBE-MARK-MASQ", "NEAR -m udp -p udp -j DNAT --to-destination 10.244.1.5:8080",
		}},
		{"UDP without endpoints", func(p *model.Port) { udp(p); unserved(p) }, nil},
		{"affinity", sticky, []string{
			"TRANSLATIONS -m tcp -p tcp -d 10.96.0.10 --dport 80 -j SVC",
			"TRANSLATIONS -m tcp -p tcp -d 198.51.100.1 --dport 80 -j EXT",
			"EXT -j MARK --and-mark 0xffffdfff", "EXT -j KUBE-MARK-MASQ", "EXT -j SVC",
			"SVC -m set --match-set FAR src -j FAR", "SVC -j FAR",
			"FAR -s 10.244.2.7 -j KUBE-MARK-MASQ", "FAR -j SET --add-set FAR src --exist",
			"FAR -m tcp -p tcp -j DNAT --to-destination 10.244.2.7:8080",
		}},
		{"external policy Local", local, append([]string{
			"EXT -j SVL", "SVL -j NEAR",
			"SVC -m statistic --mode random --probability 0.5000000000 -j NEAR", "SVC -j FAR",
			"NEAR -s 10.244.1.5 -j KUBE-MARK-MASQ", "NEAR -m tcp -p tcp -j DNAT --to-destination 10.244.1.5:8080",
		}, outsideOfLocal...)},
		{"external policy Local without local endpoint", func(p *model.Port) { withoutLocal(p); local(p) },
			append([]string{"SVC -j FAR"}, outsideOfLocal...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesired(testTranslator)
			d.advance(state(web(c.change)), testPlace)
			var got []string
			for _, f := range d.allTranslations() {
				for _, r := range f.Shared[natTranslations] {
					got = append(got, brief("TRANSLATIONS", r))
				}
				for _, ch := range f.Chains {
					for _, r := range ch.Rules {
						got = append(got, brief(ch.Name, r))
					}
				}
			}
			expectLines(t, "rules", got, c.want)
		})
	}
}

// outsideOfLocal is what the frontends of a TCP Service under external policy Local have in common.
var outsideOfLocal = []string{
	"TRANSLATIONS -m tcp -p tcp -d 192.168.7.11 --dport 30080 -j EXT",
	"TRANSLATIONS -m tcp -p tcp -d 192.168.7.111 --dport 30080 -j EXT",
	"TRANSLATIONS -m tcp -p tcp -d 10.244.1.1 --dport 30080 -j EXT",
	"TRANSLATIONS -m tcp -p tcp -d 198.51.100.1 --dport 80 -j EXT",
	"TRANSLATIONS -m tcp -p tcp -d 203.0.113.1 --dport 80 -j EXT",
	"EXT -j MARK --and-mark 0xffffdfff", "EXT -s 10.244.1.0/24 -j SVC",
	"EXT -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ", "EXT -m addrtype --src-type LOCAL -j SVC",
	"FAR -s 10.244.2.7 -j KUBE-MARK-MASQ", "FAR -m tcp -p tcp -j DNAT --to-destination 10.244.2.7:8080",
}

var comment = regexp.MustCompile(`-m comment --comment ("[^"]*"|\S+) `)

// brief returns a rule without its comment, and with short names for the chains and sets of the Service web.
func brief(chain string, r xtables.Rule) string {
	text := comment.ReplaceAllString(chain+" "+string(r), "")
	id := web(nil).Ports[0].ID
	for _, id.Protocol = range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		names := dnat.NamesOf(id)
		text = strings.NewReplacer(names.Cluster, "SVC", names.Local, "SVL", names.External, "EXT",
			dnat.EndpointChain(id, near.Addr), "NEAR", dnat.EndpointChain(id, far.Addr), "FAR").Replace(text)
	}
	return text
}
