// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/noun"
)

// arrivals say when packets come to a hook.
var arrivals = map[string]string{
	"ingress":     "a packet arrives at a device",
	"prerouting":  "a packet has arrived, before the routing decision",
	"input":       "the packet is for this node",
	"forward":     "the packet goes on to another machine or pod",
	"output":      "a packet of this node itself",
	"postrouting": "the packet leaves",
	"egress":      "a packet is given to a device",
}

// Print writes the rules in the order in which a packet of each family meets them, with counters. A chain or set that
// several rules lead to is written where the first one does.
func (r *Ruleset) Print(out io.Writer, families ...string) error {
	p := &printer{Writer: bufio.NewWriter(out), rules: r, chains: map[*Chain]bool{}, sets: map[*Set]bool{}}
	for _, f := range families {
		p.family(f)
	}
	p.others()
	p.sockets()
	return p.Flush()
}

type printer struct {
	*bufio.Writer
	rules  *Ruleset
	chains map[*Chain]bool // that have been written
	sets   map[*Set]bool
}

func (p *printer) family(family string) {
	for _, hook := range Hooks {
		stations := p.rules.At(hook, family)
		if len(stations) == 0 {
			continue
		}
		fmt.Fprintf(p, "=== %s %s: %s\n", map[string]string{IP: "IPv4", IP6: "IPv6"}[family], hook, arrivals[hook])
		for _, s := range stations {
			p.station(s)
		}
		fmt.Fprint(p, "\n")
	}
}

func (p *printer) station(s Station) {
	if s.Table == nil {
		if s.Priority == priorityConfirm {
			fmt.Fprintf(p, "\n[last] %s\n", s.Kernel)
			return
		}
		fmt.Fprintf(p, "\n[%d] %s\n", s.Priority, s.Kernel)
		if s.Priority == priorityServers {
			p.servers()
		}
		return
	}
	fmt.Fprintf(p, "\n[%d] %s: table %s %s, chain %s (%s)", s.Priority, s.Table.Backend, s.Table.Family, s.Table.Name,
		s.Chain.Name, policy(s.Chain))
	if p.chains[s.Chain] {
		fmt.Fprint(p, ", as above\n")
		return
	}
	for i, c := range s.Table.Reached(s.Chain, p.chains) {
		if i > 0 {
			fmt.Fprintf(p, "  chain %s", c.Name)
		}
		p.chain(s.Table, c)
	}
}

func policy(c *Chain) string {
	text := "policy " + strings.ToLower(c.Policy)
	if c.Device != "" {
		text = "device " + c.Device + ", " + text
	}
	if c.Counters != nil {
		text += fmt.Sprintf(" [%d:%d]", c.Counters.Packets, c.Counters.Bytes)
	}
	return text
}

// chain ends the heading of a chain, and writes its rules and the sets that they are the first to use.
func (p *printer) chain(t *Table, c *Chain) {
	if c.Comment != "" {
		fmt.Fprintf(p, ": %s", c.Comment)
	}
	fmt.Fprint(p, "\n")
	for _, r := range c.Rules {
		p.about(r.About)
		p.line(r.Counters, r.Text)
	}
	for _, r := range c.Rules {
		for _, name := range r.Sets {
			p.set(p.rules.find(t, name))
		}
	}
}

// find returns the set that a rule of a table names.
func (r *Ruleset) find(t *Table, name string) *Set {
	sets := t.Sets
	if t.Backend != NFTables {
		sets = r.IPSets
	}
	if i := slices.IndexFunc(sets, func(s *Set) bool { return s.Name == name }); i >= 0 {
		return sets[i]
	}
	return nil
}

func (p *printer) set(s *Set) {
	if s == nil || p.sets[s] {
		return
	}
	p.sets[s] = true
	fmt.Fprintf(p, "  %s %s", s.Kind, s.Name)
	if s.Comment != "" {
		fmt.Fprintf(p, ": %s", s.Comment)
	}
	properties := append([]string{noun.Count(len(s.Elements), "element")}, s.Properties...)
	fmt.Fprintf(p, " (%s)\n", strings.Join(properties, "; "))
	for _, e := range s.Elements {
		p.about(e.About)
		p.line(e.Counters, e.Text)
	}
}

// about writes what the next line is for.
func (p *printer) about(text string) {
	if text != "" {
		fmt.Fprintf(p, "%*s# %s\n", indent, "", text)
	}
}

// indent is how far rules are indented, for counters of packets and bytes.
const indent = 18

func (p *printer) line(c *Counters, text string) {
	if c == nil {
		fmt.Fprintf(p, "%*s%s\n", indent, "", text)
		return
	}
	fmt.Fprintf(p, "%7d %8d  %s\n", c.Packets, c.Bytes, text)
}

// servers writes the virtual servers as ipvsadm does.
func (p *printer) servers() {
	for _, s := range p.rules.Servers {
		p.about(s.About)
		fmt.Fprintf(p, "%*s%s\n", indent, "", s)
		for _, r := range s.Real {
			p.about(r.About)
			fmt.Fprintf(p, "%*s  %s\n", indent, "", r)
		}
	}
}

// String returns "tcp 10.96.0.10:80 rr persistent 10800".
func (s *Server) String() string {
	at := s.At.String()
	if !s.At.IsValid() {
		at = fmt.Sprintf("%#x", s.Mark)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", s.Proto, at, s.Scheduler, s.Flags))
}

// String returns "-> 10.244.1.2:8080 Masq weight 1, 2 active, 0 inactive".
func (r RealServer) String() string {
	return fmt.Sprintf("-> %s %s weight %d, %d active, %d inactive", r.At, r.Forward, r.Weight, r.Active, r.Inactive)
}

// String returns "tcp 10.244.1.2:8080".
func (s *Socket) String() string { return s.Proto + " " + s.At.String() }

// others writes chains and sets that no hook of these families leads to.
func (p *printer) others() {
	title := func() { fmt.Fprint(p, "=== not reached from a hook\n\n") }
	for _, t := range p.rules.Tables {
		for _, c := range t.Chains {
			if p.chains[c] || c.Hook != "" {
				continue
			}
			title()
			title = func() {}
			p.chains[c] = true
			fmt.Fprintf(p, "%s: table %s %s, chain %s", t.Backend, t.Family, t.Name, c.Name)
			p.chain(t, c)
		}
	}
}

// sockets writes the sockets that take packets.
func (p *printer) sockets() {
	if len(p.rules.Sockets) == 0 {
		return
	}
	fmt.Fprint(p, "=== sockets: where packets for this node end, after input\n\n")
	for _, s := range p.rules.Sockets {
		p.about(s.About)
		fmt.Fprintf(p, "%*s%s\n", indent, "", s)
	}
}
