// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// APIVersion and Kind are those of a Traced in JSON. docs/schema/trace.json describes it.
const (
	APIVersion = "viplab/v1"
	Kind       = "Trace"
)

// Traced is what became of a request and of its first packet.
type Traced struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Setup
	From    string         `json:"from"`
	To      string         `json:"to"`
	Proto   string         `json:"proto"`
	Source  netip.AddrPort `json:"source"`
	Address netip.AddrPort `json:"address"`
	Outcome string         `json:"outcome"`
	// Verdict is the outcome with what is known of the server.
	Verdict string `json:"verdict"`
	// Walk is the way of the request's first packet.
	Walk *Walk `json:"walk"`
	// Reply is the way of the packet that answers it, nil if it was not asked for. It has no steps if nothing answered.
	Reply *Walk `json:"reply,omitempty"`
	// Relayed is the connection that a relay on a node has made to the server, nil if there was none.
	Relayed *Walk `json:"relayed,omitempty"`
	// Errors are the ways of ICMP errors that quote the packet, in the order in which they were sent.
	Errors []*Walk `json:"errors,omitempty"`
	// Flows are the entries of connection tracking that the packet has made or used.
	Flows []Flow `json:"flows,omitempty"`
	// Losses are packets that the kernel has dropped meanwhile, if there was no answer.
	Losses []Loss `json:"losses,omitempty"`
	// Places are the machines and pods of the network that the trace has looked at, with their devices.
	Places []Place `json:"places,omitempty"`
	// Chains are those that the packets have met, and some that a packet could have reached from them, by place and in
	// the order of the ruleset.
	Chains []Chain `json:"chains,omitempty"`
	// Unseen says what the trace could not see, in sentences.
	Unseen []string `json:"unseen,omitempty"`
	// Names are those of the addresses in the walk.
	Names map[netip.Addr]string `json:"names,omitempty"`
}

// Parse parses what "viplab trace -o json" writes: one document after the other, at least one.
func Parse(text []byte) (all []*Traced, err error) {
	const want = `want what "viplab trace -o json" writes: `
	for d := json.NewDecoder(bytes.NewReader(text)); d.More() || len(all) == 0; {
		var t Traced
		if err := d.Decode(&t); err != nil {
			return nil, fmt.Errorf(want+"%w", err)
		}
		if t.APIVersion != APIVersion || t.Kind != Kind || t.Walk == nil {
			return nil, fmt.Errorf(want+"apiVersion %s and kind %s, not %q and %q", APIVersion, Kind, t.APIVersion, t.Kind)
		}
		all = append(all, &t)
	}
	return all, nil
}

// Setup describes the lab of a trace.
type Setup struct {
	Proxier  string `json:"proxier,omitempty"`
	Enforcer string `json:"enforcer,omitempty"`
	Pods     string `json:"pods,omitempty"`    // "bridge" or "routed"
	Overlay  string `json:"overlay,omitempty"` // "ipip", "vxlan" or "direct"
}

// Flow is an entry of a node's connection tracking.
type Flow struct {
	Node string `json:"node"`
	Flow string `json:"flow"` // as conntrack prints it
	// Made reports that the request has made the entry; else it has used one that was there.
	Made bool `json:"made"`
}

// Walks returns the ways of all packets, without those that are nil.
func (t *Traced) Walks() []*Walk {
	var all []*Walk
	for _, w := range append([]*Walk{t.Walk, t.Relayed, t.Reply}, t.Errors...) {
		if w != nil {
			all = append(all, w)
		}
	}
	return all
}

// tuples returns what the packets looked like.
func (t *Traced) tuples() []Tuple {
	all := []Tuple{{Src: t.Source, Dst: t.Address}}
	for _, w := range t.Walks() {
		for _, s := range w.Steps {
			if s.After != nil {
				all = append(all, *s.After)
			}
		}
	}
	return all
}

// name keeps the names of the addresses that the packets had.
func (t *Traced) name(names map[netip.Addr]string) {
	t.Names = map[netip.Addr]string{}
	for _, tuple := range t.tuples() {
		for _, a := range []netip.Addr{tuple.Src.Addr(), tuple.Dst.Addr()} {
			if names[a] != "" {
				t.Names[a] = names[a]
			}
		}
	}
}

// Print writes a trace as text.
func (t *Traced) Print(w io.Writer) error { return t.PrintIn(w, Style{}) }

// PrintIn writes a trace as text in a style.
func (t *Traced) PrintIn(w io.Writer, style Style) error {
	fmt.Fprintf(w, "%s %s -> %s %s/%s\n%s\n\n", t.From, bare(t.Source), t.To, bare(t.Address), t.Proto, t.Verdict)
	if err := t.Walk.printWithEnd(w, style); err != nil {
		return err
	}
	if t.Relayed != nil {
		fmt.Fprintf(w, "\nThe connection of the relay\n\n")
		if err := t.Relayed.printWithEnd(w, style); err != nil {
			return err
		}
	}
	for _, e := range t.Errors {
		fmt.Fprintf(w, "\nThe ICMP error that comes back\n\n")
		if err := e.printWithEnd(w, style); err != nil {
			return err
		}
	}
	for i, l := range t.Losses {
		if i == 0 {
			fmt.Fprintf(w, "\nDropped by the kernel meanwhile, packets of all senders\n")
		}
		fmt.Fprintf(w, "  %s  %s %d: %s\n", l.Place, l.Counter, l.Packets, l.Why)
	}
	for i, f := range t.Flows {
		if i == 0 {
			fmt.Fprintf(w, "\nConnection tracking\n")
		}
		fmt.Fprintf(w, "  %s  %s\n", f.Node, f.Flow)
	}
	if t.Reply == nil {
		return t.printUnseen(w)
	}
	if len(t.Reply.Steps) == 0 {
		fmt.Fprintln(w, "\nNo packet answered.")
		return t.printUnseen(w)
	}
	fmt.Fprintf(w, "\nThe answer\n\n")
	if err := t.Reply.printWithEnd(w, style); err != nil {
		return err
	}
	return t.printUnseen(w)
}

func (t *Traced) printUnseen(w io.Writer) error {
	if len(t.Unseen) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nNot seen\n  %s\n", strings.Join(t.Unseen, "\n  "))
	return err
}

// bare returns an address without the port if it is 0.
func bare(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// printWithEnd prints a walk and what ended it.
func (w *Walk) printWithEnd(out io.Writer, style Style) error {
	if err := w.print(out, style); err != nil {
		return err
	}
	e := w.End
	if e == nil || e.Outcome == Delivered {
		return nil
	}
	what := style.paint(red, strings.ToUpper(string(e.Outcome[:1]))+string(e.Outcome[1:]))
	if s := w.Dropped(); s != nil {
		fmt.Fprintf(out, "\n%s on %s by: %s\n", what, s.Place, s)
		return nil
	}
	fmt.Fprintf(out, "\n%s: %s\n", what, strings.TrimSpace(e.Text+" "+e.Why))
	return nil
}
