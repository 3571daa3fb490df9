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
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
)

// render returns the parts that depend on policies: the chains of pods and policies, and the elements that lead to
// them.
func render(s *policy.State) *nft.Parts {
	out := &nft.Parts{}
	for _, p := range s.Policies {
		out.Chains = append(out.Chains, ofPolicy(p))
	}
	for _, p := range s.Pods {
		for _, d := range directions {
			verdict := "accept"
			if len(p.Policies(d)) > 0 {
				c := ofPod(p, d)
				out.Chains = append(out.Chains, c)
				verdict = "goto " + c.Name
			}
			for _, a := range p.Addrs {
				out.Elements = append(out.Elements, nft.Element{In: mapName(d, lab.FamilyOf(a)), Key: a.String(),
					Value: verdict, Comment: p.Label()})
			}
		}
	}
	return out
}

// ofPod returns the chain of an isolated pod.
func ofPod(p *policy.Pod, d policy.Direction) nft.Chain {
	deny := drop(d, p.Label())
	rules := []string{"ct state invalid " + deny}
	for _, by := range p.Policies(d) {
		rules = append(rules, "jump "+policyChain(by))
	}
	return nft.NewChain(named(string(d), p.Namespace+"/"+p.Name),
		fmt.Sprintf("pod %s is isolated for %s", p.Label(), d), append(rules, deny)...)
}

// drop returns statements that log, count and drop a packet. A log prefix has at most 127 bytes.
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

// named returns a unique name. It contains a hash of the whole name, which is cut: the kernel accepts 255 bytes.
func named(prefix, name string) string {
	sum := sha256.Sum256([]byte(name))
	plain := policy.Plain(name)
	return prefix + "-" + base32.StdEncoding.EncodeToString(sum[:])[:16] + "-" + plain[:min(len(plain), 128)]
}

func ofPolicy(p *policy.Policy) nft.Chain {
	var rules []string
	for _, a := range p.Allows {
		peers := peerMatches(p.Direction, a.Peer)
		for _, ports := range portMatches(a) {
			for _, peer := range peers {
				if peer.family == 0 || ports.family == 0 || peer.family == ports.family {
					rules = append(rules, fmt.Sprintf("%s %s accept comment %q", peer.text, ports.text, a.Why))
				}
			}
		}
	}
	return nft.NewChain(policyChain(p), fmt.Sprintf("what NetworkPolicy %s allows for %s", p.Label(), p.Direction),
		rules...)
}

// match is a part of a rule. It may be for one family only.
type match struct {
	family lab.Family // 0: both
	text   string
}

// peerMatches matches the peer: the source of a packet, or its destination.
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
	for _, f := range families {
		if addrs := ofFamily(p.Addrs, f); len(addrs) > 0 {
			out = append(out, match{f, fmt.Sprintf("%s %s %s", nft.Word(f), side, set(addrs))})
		}
	}
	return out
}

// blockMatches matches blocks without their exceptions, for each family.
func blockMatches(side string, p policy.Peer) []match {
	var out []match
	for _, f := range families {
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

// disjoint returns the prefixes of a family without those that others cover: a set must not contain them.
func disjoint(all []netip.Prefix, f lab.Family) []netip.Prefix {
	sorted := nodeaddr.OfFamily(all, f)
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var out []netip.Prefix
	for _, p := range sorted {
		// In this order a prefix directly follows the one that covers it, or others that the same one covers.
		if last := len(out) - 1; last < 0 || !out[last].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// portMatches matches the protocol and the destination port. A named port matches the destination as well.
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
	for _, f := range families {
		var to []string
		for _, n := range a.Named {
			if lab.FamilyOf(n.Addr()) == f {
				to = append(to, fmt.Sprintf("%s . %d", n.Addr(), n.Port()))
			}
		}
		if len(to) > 0 {
			all := strings.Join(to, ", ")
			out = append(out, match{f, fmt.Sprintf("%s daddr . %s dport { %s }", nft.Word(f), proto, all)})
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
