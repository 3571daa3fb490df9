// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// desired is what the kernel must hold for a family of a node.
type desired struct {
	chains []*chain       // of the filter table
	sets   map[string]set // by name
}

// render returns the chains and sets for a state. It ignores pods without a device: they are not on this node.
func render(ip lab.Family, s *policy.State, ports policy.Ports) *desired {
	d := &desired{sets: map[string]set{}}
	for _, p := range s.Policies {
		d.chains = append(d.chains, d.ofPolicy(ip, p))
	}
	fromWl := newChain(chainFrom, "by the device that a packet has come from")
	toWl := newChain(chainTo, "by the device that it leaves by")
	ipvs := newChain(chainIPVS, "what IPVS forwards has no device any more that it has come from")
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
			ipvs.add(xtables.From(a), goTo(sides[policy.Egress].device+device))
		}
	}
	fromWl.drop(policy.Egress, "unknown pod", "", xtables.Comment("Unknown interface"))
	toWl.drop(policy.Ingress, "unknown pod", "", xtables.Comment("Unknown interface"))
	d.chains = slices.AppendSeq(d.chains, maps.Values(profiles))
	slices.SortFunc(d.chains, func(a, b *chain) int { return strings.Compare(a.Name, b.Name) })
	d.chains = slices.Concat(d.chains, pods, []*chain{fromWl, toWl, ipvs}, fixed())
	return d
}

// fixed returns the chains that lead to the others.
func fixed() []*chain {
	forward := newChain(chainForward, "asks for what comes from a pod, then for what goes to one")
	forward.add(from(devices+"+"), xtables.Jump(chainFrom))
	forward.add(to(devices+"+"), xtables.Jump(chainTo))
	output := newChain(chainOutput, "what the node itself sends to pods is not judged, but what IPVS forwards is")
	output.add("", xtables.FromLocal, xtables.Return)
	output.add("", xtables.Jump(chainIPVS))
	output.add(to(devices+"+"), xtables.Jump(chainTo))
	return []*chain{forward, output}
}

// prerouting returns the chain of the raw table.
func prerouting() *chain {
	c := newChain(chainPrerouting, "a pod whose address is another one's would not get the replies")
	c.drop(policy.Egress, "spoofed source", from(devices+"+"), "-m rpfilter --validmark --invert")
	return c
}

// ofPod returns the chain of a direction of the pod behind a device.
func ofPod(p *policy.Pod, d policy.Direction, device string, profiles map[string]*chain) *chain {
	s := sides[d]
	c := newChain(s.device+device, fmt.Sprintf("pod %s, %s", p.Label(), d))
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
		profiles[to.Name] = to
		c.add("", xtables.Jump(to.Name))
		c.add("", xtables.Comment("Return if profile accepted"), xtables.Marked(markAccept), xtables.Return)
	}
	c.drop(d, p.Label(), "", xtables.Comment("Drop if no profiles matched"))
	return c
}

// ofProfile returns the chain of a profile of pods that no policy isolates. That of a namespace accepts everything,
// that of a service account adds nothing.
func ofProfile(prefix, name string) *chain {
	c := newChain(readable(prefix, name), "profile "+policy.Plain(name)+", for pods that nothing isolates")
	if strings.HasPrefix(name, "kns.") {
		c.accept("")
	}
	return c
}

// accept marks matching packets, and returns. It returns the id of the rule.
func (c *chain) accept(head xtables.Part, match ...xtables.Part) (id string) {
	id = c.add(head, append(match, setMark(markAccept))...)
	c.add("", xtables.Marked(markAccept), xtables.Return)
	return id
}

// ofPolicy returns the chain of a policy.
func (d *desired) ofPolicy(ip lab.Family, p *policy.Policy) *chain {
	c := newChain(policyChain(p), fmt.Sprintf("what NetworkPolicy %s allows for %s", p.Label(), p.Direction))
	for _, a := range p.Allows {
		peer, ok := d.peer(ip, sides[p.Direction].peer, a.Peer)
		if !ok {
			continue
		}
		for _, ports := range d.ports(ip, a) {
			c.why[c.accept(protocol(a), peer, ports)] = a.Why
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

// multiport is the maximum number of ports of a rule. A range counts twice.
const multiport = 15

// ports returns matches of destination ports, one for each rule.
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
	flush := func() {
		all = append(all, xtables.Part("-m multiport --dports "+strings.Join(words, ",")))
		words, slots = nil, 0
	}
	for _, r := range a.Ports {
		need := 1
		if r.First != r.Last {
			need = 2
		}
		if slots+need > multiport {
			flush()
		}
		words = append(words, strings.Replace(r.String(), "-", ":", 1))
		slots += need
	}
	flush()
	return all
}
