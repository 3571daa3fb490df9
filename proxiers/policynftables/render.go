// SPDX-License-Identifier: Apache-2.0

package policynftables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
)

// chain is a chain with its rules, and what it is for.
type chain struct {
	name, comment string
	rules         []string
}

func (c *chain) add(format string, args ...any) {
	c.rules = append(c.rules, fmt.Sprintf(format, args...))
}

// render is what depends on policies: the chains of pods and policies, those that are jumped to first, and the elements
// that lead to them.
func render(s *policy.State) ([]chain, []nft.Element) {
	var chains []chain
	var elements []nft.Element
	for _, p := range s.Policies {
		chains = append(chains, ofPolicy(p))
	}
	for _, p := range s.Pods {
		for _, d := range directions {
			verdict := "accept"
			if len(p.Policies(d)) > 0 {
				c := ofPod(p, d)
				chains = append(chains, c)
				verdict = "goto " + c.name
			}
			for _, a := range p.Addrs {
				elements = append(elements, nft.Element{In: string(d) + lab.FamilyOf(a).String()[1:], Key: a.String(),
					Value:   verdict,
					Comment: p.Label()})
			}
		}
	}
	return chains, elements
}

var directions = []policy.Direction{policy.Egress, policy.Ingress}

// ofPod is the chain of a pod that is isolated.
func ofPod(p *policy.Pod, d policy.Direction) chain {
	c := chain{name: named(string(d), p.Namespace+"/"+p.Name),
		comment: fmt.Sprintf("pod %s is isolated for %s", p.Label(), d)}
	deny := drop(d, p.Label())
	c.add("ct state invalid %s", deny)
	for _, by := range p.Policies(d) {
		c.add("jump %s", policyChain(by))
	}
	c.add("%s", deny)
	return c
}

// drop logs, counts and drops what is denied to somebody, or by his egress rules. A prefix has at most 127 bytes.
func drop(d policy.Direction, who string) string {
	prefix, group := "DPI|"+who, 1
	if d == policy.Egress {
		prefix, group = "DPE|"+who, 2
	}
	return fmt.Sprintf("log prefix %q group %d counter drop", prefix[:min(len(prefix), 127)], group)
}

func policyChain(p *policy.Policy) string {
	return named(string(p.Direction)+"-by", p.Namespace+"/"+p.Name)
}

// named has a hash of the whole name, as the kernel takes 255 bytes and no two names may become one.
func named(prefix, name string) string {
	sum := sha256.Sum256([]byte(name))
	plain := policy.Plain(name)
	return prefix + "-" + base32.StdEncoding.EncodeToString(sum[:])[:16] + "-" + plain[:min(len(plain), 128)]
}

func ofPolicy(p *policy.Policy) chain {
	c := chain{name: policyChain(p), comment: fmt.Sprintf("what NetworkPolicy %s allows for %s", p.Label(), p.Direction)}
	for _, a := range p.Allows {
		peers := peerMatches(p.Direction, a.Peer)
		for _, ports := range portMatches(a) {
			for _, peer := range peers {
				if peer.family != 0 && ports.family != 0 && peer.family != ports.family {
					continue
				}
				rule := strings.TrimSpace(peer.text + " " + ports.text)
				c.add("%s", strings.TrimSpace(fmt.Sprintf("%s accept comment %q", rule, a.Why)))
			}
		}
	}
	return c
}

// match is a part of a rule. It may fit one family alone.
type match struct {
	family lab.Family // 0: both
	text   string
}

// peerMatches match the other side: where a packet comes from, or where it goes to.
func peerMatches(d policy.Direction, p policy.Peer) []match {
	side := "saddr"
	if d == policy.Egress {
		side = "daddr"
	}
	switch {
	case p.Any:
		return []match{{}}
	case len(p.Blocks) > 0:
		return blockMatches(side, p)
	}
	var out []match
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		if addrs := ofFamily(p.Addrs, f); len(addrs) > 0 {
			out = append(out, match{f, fmt.Sprintf("%s %s %s", nft.Word(f), side, set(addrs))})
		}
	}
	return out
}

// blockMatches match blocks without what is excepted, family by family.
func blockMatches(side string, p policy.Peer) []match {
	var out []match
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		blocks, except := disjoint(p.Blocks, f), disjoint(p.Except, f)
		if len(blocks) == 0 {
			continue
		}
		m := match{f, fmt.Sprintf("%s %s %s", nft.Word(f), side, set(blocks))}
		if len(blocks) == 1 {
			m.text = fmt.Sprintf("%s %s %s", nft.Word(f), side, blocks[0])
		}
		if blocks[0].Bits() == 0 {
			m.text = "meta nfproto ip" + f.String()
		}
		if len(except) > 0 {
			m.text += fmt.Sprintf(" %s %s != %s", nft.Word(f), side, set(except))
		}
		out = append(out, m)
	}
	return out
}

// disjoint are the prefixes of a family without those that others cover: a set has no place for them.
func disjoint(all []netip.Prefix, f lab.Family) []netip.Prefix {
	sorted := slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return lab.FamilyOf(p.Addr()) != f })
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var out []netip.Prefix
	for _, p := range sorted {
		// In this order whatever covers a prefix comes before it, and nothing that it does not cover comes between.
		if last := len(out) - 1; last < 0 || !out[last].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// portMatches match the protocol and the destination port. A named port matches the destination, too.
func portMatches(a policy.Allow) []match {
	proto := strings.ToLower(string(a.Protocol))
	switch {
	case proto == "":
		return []match{{}}
	case len(a.Ports) > 0:
		return []match{{0, proto + " dport " + set(a.Ports)}}
	case len(a.Named) == 0:
		return []match{{0, "meta l4proto " + proto}}
	}
	var out []match
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		var to []string
		for _, n := range a.Named {
			if lab.FamilyOf(n.Addr()) == f {
				to = append(to, fmt.Sprintf("%s . %d", n.Addr(), n.Port()))
			}
		}
		if len(to) > 0 {
			out = append(out, match{f, fmt.Sprintf("%s daddr . %s dport { %s }", nft.Word(f), proto, strings.Join(to, ", "))})
		}
	}
	return out
}

func set[T fmt.Stringer](all []T) string {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = one.String()
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

func ofFamily(all []netip.Addr, f lab.Family) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return lab.FamilyOf(a) != f })
}
