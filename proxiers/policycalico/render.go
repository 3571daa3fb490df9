// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// desired is what a family of a node is to have.
type desired struct {
	chains []*chain       // of the filter table, those that are jumped to first
	sets   map[string]set // by name
}

// render is what a state comes to in a family. Pods without a device are none of this node's.
func render(ip lab.Family, s *policy.State, ports policy.Ports) *desired {
	d := &desired{sets: map[string]set{}}
	for _, p := range s.Policies {
		d.chains = append(d.chains, d.ofPolicy(ip, p))
	}
	fromWl, toWl := &chain{name: chainFrom, about: "by the device that a packet has come from"},
		&chain{name: chainTo, about: "by the device that it leaves by"}
	ipvs := &chain{name: chainIPVS, about: "what IPVS forwards has no device any more that it has come from"}
	var pods []*chain
	profiles := map[string]*chain{}
	for _, p := range s.Pods {
		for _, a := range p.Addrs {
			device := ports[a]
			if lab.FamilyOf(a) != ip || device == "" {
				continue
			}
			for _, dir := range []policy.Direction{policy.Egress, policy.Ingress} {
				pods = append(pods, ofPod(p, dir, device, profiles))
			}
			fromWl.add(from(device), goTo(sides[policy.Egress].device+device))
			toWl.add(to(device), goTo(sides[policy.Ingress].device+device))
			ipvs.add(xtables.FromAddr(a), goTo(sides[policy.Egress].device+device))
		}
	}
	fromWl.drop(policy.Egress, "unknown pod", "", xtables.Comment("Unknown interface"))
	toWl.drop(policy.Ingress, "unknown pod", "", xtables.Comment("Unknown interface"))
	for _, c := range profiles {
		d.chains = append(d.chains, c)
	}
	slices.SortFunc(d.chains, func(a, b *chain) int { return strings.Compare(a.name, b.name) })
	d.chains = slices.Concat(d.chains, pods, []*chain{fromWl, toWl, ipvs}, fixed())
	return d
}

// fixed are the chains through which packets get to the others.
func fixed() []*chain {
	forward := &chain{name: chainForward, about: "asks for what comes from a pod, then for what goes to one"}
	forward.add(from(devices+"+"), xtables.Jump(chainFrom))
	forward.add(to(devices+"+"), xtables.Jump(chainTo))
	output := &chain{name: chainOutput, about: "what the node itself sends to pods is not judged, but what IPVS " +
		"forwards is"}
	output.add("", xtables.FromLocal, xtables.Return)
	output.add("", xtables.Jump(chainIPVS))
	output.add(to(devices+"+"), xtables.Jump(chainTo))
	return []*chain{forward, output}
}

// prerouting is the chain of the raw table.
func prerouting() *chain {
	c := &chain{name: chainPrerouting, about: "a pod whose address is another one's would not get the replies"}
	c.drop(policy.Egress, "spoofed source", from(devices+"+"), "-m rpfilter --validmark --invert")
	return c
}

// ofPod is a direction of the pod behind a device.
func ofPod(p *policy.Pod, d policy.Direction, device string, profiles map[string]*chain) *chain {
	s := sides[d]
	c := &chain{name: s.device + device, about: fmt.Sprintf("pod %s, %s", p.Label(), d)}
	c.add("", xtables.State("RELATED,ESTABLISHED"), xtables.Accept)
	c.drop(d, p.Label(), "", xtables.State("INVALID"))
	c.add("", clearMark(markAccept))
	if d == policy.Egress {
		c.drop(d, p.Label(), "-p udp", xtables.Comment("Drop VXLAN encapped packets originating in pods"),
			"-m multiport --dports 4789")
		c.drop(d, p.Label(), "-p ipencap", xtables.Comment("Drop IPinIP encapped packets originating in pods"))
		c.drop(d, p.Label(), "-p ipv6", xtables.Comment("Drop IPinIP encapped packets originating in pods"))
	}
	if all := p.Policies(d); len(all) > 0 {
		c.about += ": isolated by"
		c.add("", xtables.Comment("Start of policies"), clearMark(markPass))
		for _, by := range all {
			c.about += " " + by.Label()
			c.add("", lacksMark(markPass), xtables.Jump(policyChain(by)))
			c.add("", xtables.Comment("Return if policy accepted"), xtables.Marked(markAccept), xtables.Return)
		}
		c.drop(d, p.Label(), "", xtables.Comment("Drop if no policies passed packet"), lacksMark(markPass))
	}
	for _, profile := range []string{"kns." + p.Namespace, "ksa." + p.Namespace + "." + p.Account} {
		to := ofProfile(s.profile, profile)
		profiles[to.name] = to
		c.add("", xtables.Jump(to.name))
		c.add("", xtables.Comment("Return if profile accepted"), xtables.Marked(markAccept), xtables.Return)
	}
	c.drop(d, p.Label(), "", xtables.Comment("Drop if no profiles matched"))
	return c
}

// ofProfile is what pods that no policy isolates get from their namespace, which is everything, and from their service
// account, which is nothing more.
func ofProfile(prefix, name string) *chain {
	c := &chain{name: readable(prefix, name), about: "profile " + policy.Plain(name) + ", for pods that nothing isolates"}
	if strings.HasPrefix(name, "kns.") {
		c.accept()
	}
	return c
}

// accept marks what fits, and returns.
func (c *chain) accept(match ...xtables.Part) (id string) {
	head := xtables.Part("")
	if len(match) > 0 && strings.HasPrefix(string(match[0]), "-p ") {
		head, match = match[0], match[1:]
	}
	id = c.add(head, append(match, setMark(markAccept))...)
	c.add("", xtables.Marked(markAccept), xtables.Return)
	return id
}

// ofPolicy is the chain of a policy.
func (d *desired) ofPolicy(ip lab.Family, p *policy.Policy) *chain {
	c := &chain{name: policyChain(p), about: fmt.Sprintf("what NetworkPolicy %s allows for %s", p.Label(), p.Direction),
		why: map[string]string{}}
	for _, a := range p.Allows {
		peer, ok := d.peer(ip, sides[p.Direction].peer, a.Peer)
		if !ok {
			continue
		}
		for _, ports := range d.ports(ip, a) {
			match := []xtables.Part{protocol(a), peer, ports}
			c.why[c.accept(slices.DeleteFunc(match, func(p xtables.Part) bool { return p == "" })...)] = a.Why
		}
	}
	return c
}

func protocol(a policy.Allow) xtables.Part {
	if a.Protocol == "" {
		return ""
	}
	return xtables.Part("-p " + strings.ToLower(string(a.Protocol)))
}

// multiport is how many ports a rule can have. A range counts twice.
const multiport = 15

// ports are matches of destination ports, in as many rules as it takes.
func (d *desired) ports(ip lab.Family, a policy.Allow) []xtables.Part {
	if len(a.Named) > 0 {
		return d.named(ip, a.Protocol, a.Named)
	}
	if len(a.Ports) == 0 {
		return []xtables.Part{""}
	}
	var all []xtables.Part
	var words []string
	slots := 0
	for _, r := range a.Ports {
		need := 1
		if r.First != r.Last {
			need = 2
		}
		if slots+need > multiport {
			all = append(all, xtables.Part("-m multiport --dports "+strings.Join(words, ",")))
			words, slots = nil, 0
		}
		words = append(words, strings.Replace(r.String(), "-", ":", 1))
		slots += need
	}
	return append(all, xtables.Part("-m multiport --dports "+strings.Join(words, ",")))
}
