// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/viplab/viplab/internal/files"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// evidence writes the files of a failure into its folder.
type evidence struct {
	out, folder string // the report's folder, and the failure's folder in it
	files       []string
	missing     []string // the files that could not be written
	fault       error    // why the first of them could not
}

// text is a file for people.
type text struct {
	name  string
	write func(io.Writer) error
	body  bytes.Buffer
}

// make makes the content. If a part of it is not available, the content says why.
func (t *text) make() {
	if err := t.write(&t.body); err != nil {
		fmt.Fprintf(&t.body, "\n(not complete: %v)\n", err)
	}
}

// texts makes the contents of files at the same time, and writes the files in their order.
func (e *evidence) texts(all []text) {
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(all[i].make)
	}
	wg.Wait()
	for i := range all {
		e.write(all[i].name, all[i].body.Bytes())
	}
}

// text writes one file for people.
func (e *evidence) text(name string, write func(io.Writer) error) {
	e.texts([]text{{name: name, write: write}})
}

// data writes a file for programs, completely or not at all.
func (e *evidence) data(name string, write func(io.Writer) error) {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		e.lack(name, err)
		return
	}
	e.write(name, b.Bytes())
}

func (e *evidence) write(name string, data []byte) {
	file := filepath.Join(e.folder, name)
	if err := files.Write(filepath.Join(e.out, file), data); err != nil {
		e.lack(name, err)
		return
	}
	e.files = append(e.files, file)
}

func (e *evidence) lack(name string, err error) {
	e.missing, e.fault = append(e.missing, name), cmp.Or(e.fault, err)
}

// explain writes the evidence of a failure into a new folder and adds its files to the result. If a piece of evidence
// is not available, the result says so. It never changes the verdict.
func (w *world) explain(ctx context.Context, result *spec.Result) {
	if w.cell.out == "" {
		return
	}
	e := &evidence{out: w.cell.out, folder: w.cell.folder()}
	w.explainNodes(ctx, e)
	e.text("cluster.yaml", w.dumpCluster)
	for _, f := range w.env.fleets() {
		e.text(string(f.role)+".log", func(b io.Writer) error {
			_, err := io.WriteString(b, f.logs.String())
			return err
		})
	}
	for _, t := range w.record.traces {
		e.text(t.file(".txt"), t.print)
		if t.traced != nil {
			e.data(t.file(".json"), t.encode)
		}
	}
	switch {
	case len(w.record.captures) > 0:
		e.data("packets.pcapng", func(b io.Writer) error { return observe.WritePcapng(b, w.record.captures...) })
	case len(w.failures) > 0: // otherwise there is no probe to repeat
		e.data("packets.pcapng", func(b io.Writer) error { return w.recapture(ctx, b) })
	}
	if len(w.record.captured) > 0 {
		e.data("captured.pcapng", func(b io.Writer) error { return observe.WritePcapng(b, w.record.captured...) })
	}
	e.text("failure.txt", func(b io.Writer) error {
		s := w.cell.Scenario
		fmt.Fprintf(b, "%s on %s\n%s\n\n%s\n", s.ID, w.cell.Proxier.Name(), s.Why, result.Reason)
		for _, f := range w.failures {
			fmt.Fprintf(b, "\nall rows: %s\n", f.whole())
		}
		_, err := fmt.Fprintf(b, "\nagain: %s\n", w.cell.rerun)
		return err
	})
	result.Files = append(result.Files, e.files...)
	if len(e.missing) > 0 {
		result.Reason += fmt.Sprintf("\nnot written: %s: %v", strings.Join(e.missing, ", "), e.fault)
	}
	result.Reason += "\nagain: " + w.cell.rerun
}

// explainNodes writes what the programs have made of each node, and what they have logged.
func (w *world) explainNodes(ctx context.Context, e *evidence) {
	var texts []text
	add := func(name string, write func(io.Writer) error) { texts = append(texts, text{name: name, write: write}) }
	for _, n := range w.Lab().Nodes() {
		for _, f := range w.env.fleets() {
			a := f.agent(n.Name())
			if a == nil {
				continue
			}
			add(n.Name()+f.rules(), func(b io.Writer) error { return a.dump(ctx, b) })
			if l, ok := a.instance.(spec.Logged); ok {
				add(n.Name()+"-"+string(f.role)+".log", func(b io.Writer) error {
					return withoutPanic(func() error { return l.WriteLog(b) })
				})
			}
		}
		add(n.Name()+"-conntrack.txt", func(b io.Writer) error { return w.dumpFlows(ctx, b, n.Name()) })
		add(n.Name()+"-network.txt", func(b io.Writer) error { return w.dumpNetwork(ctx, b, n.NS) })
	}
	e.texts(texts)
}

// dumpFlows writes the conntrack entries of a node: first those with an address of the scenario's Services or pods.
func (w *world) dumpFlows(ctx context.Context, b io.Writer, node string) error {
	own := w.addresses()
	var others []string
	flows, err := w.Flows(ctx, node, func(observe.Flow) bool { return true })
	for _, f := range flows {
		if own[f.Orig.Dst.Addr()] || own[f.Reply.Src.Addr()] || own[f.Orig.Src.Addr()] {
			fmt.Fprintln(b, f)
		} else {
			others = append(others, f.String())
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		fmt.Fprintf(b, "\n# of other scenarios and of viplab itself:\n%s\n", strings.Join(others, "\n"))
	}
	return err
}

// addresses returns the addresses of the scenario's Services and pods.
func (w *world) addresses() map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	add := func(namespace string, texts ...string) {
		for _, text := range texts {
			if a, err := netip.ParseAddr(text); err == nil && slices.Contains(w.namespaces(), namespace) {
				own[a] = true
			}
		}
	}
	s := w.Store().Snapshot()
	for _, svc := range s.Services {
		add(svc.Namespace, svc.Spec.ClusterIPs...)
		add(svc.Namespace, svc.Spec.ExternalIPs...)
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			add(svc.Namespace, ingress.IP)
		}
	}
	for _, pod := range s.Pods {
		if pod.Spec.HostNetwork {
			continue // its addresses are those of its node
		}
		for _, ip := range pod.Status.PodIPs {
			add(pod.Namespace, ip.IP)
		}
	}
	return own
}

// dumpNetwork writes links, addresses, routes, the whole nf_tables ruleset, ipsets, virtual servers and the kernel's
// own counters of a namespace.
func (w *world) dumpNetwork(ctx context.Context, b io.Writer, ns *netns.NS) error {
	for _, argv := range [][]string{
		{"ip", "-d", "address"}, {"ip", "route", "show", "table", "all"}, {"ip", "neighbour"},
		{"nft", "-a", "list", "ruleset"}, {"ipset", "list"},
	} {
		fmt.Fprintf(b, "# %s\n", strings.Join(argv, " "))
		text, err := w.Run(ctx, ns.Name(), argv...)
		if err != nil {
			text = err.Error()
		}
		fmt.Fprintln(b, text)
	}
	for _, name := range []string{"ip_vs", "ip_vs_conn", "snmp", "netstat", "stat/nf_conntrack"} {
		text, err := ns.ProcNet(name)
		if err != nil {
			return err
		}
		if text != "" { // the kernel may lack IPVS
			fmt.Fprintf(b, "# /proc/net/%s\n%s\n", name, text)
		}
	}
	return nil
}

func (w *world) dumpCluster(b io.Writer) error {
	var objects []store.Object
	s := w.Store().Snapshot()
	for _, o := range s.NetworkPolicies {
		objects = append(objects, o)
	}
	for _, o := range s.Services {
		objects = append(objects, o)
	}
	for _, o := range s.EndpointSlices {
		objects = append(objects, o)
	}
	for _, o := range s.Pods {
		objects = append(objects, o)
	}
	var own []store.Object
	for _, o := range objects {
		if slices.Contains(w.namespaces(), o.GetNamespace()) {
			own = append(own, o)
		}
	}
	return manifest.Encode(b, own...)
}

// recapture probes the rows that did not hold once more, with every packet of the cluster captured. The cluster's state
// is still that of the failure.
func (w *world) recapture(ctx context.Context, b io.Writer) error {
	failures := w.failures // the scenario has ended, so no lock is needed
	if len(failures) == 0 {
		return fmt.Errorf("no row failed")
	}
	var captures []*observe.Capture
	start := func(ns *netns.NS) error {
		c, err := observe.StartCapture(ns)
		if err == nil {
			captures = append(captures, c)
		}
		return err
	}
	defer func() {
		for _, c := range captures {
			_ = c.Close() // all packets have been read
		}
	}()
	for _, n := range w.Lab().Nodes() {
		if err := start(n.NS); err != nil {
			return err
		}
	}
	for _, p := range failures[len(failures)-1].probes {
		if len(p.wrong) == 0 {
			continue
		}
		if from, err := w.Host(p.row.From); err == nil && w.Lab().Node(p.row.From) == nil {
			if err := start(from.NS); err != nil {
				return err
			}
		}
		row := p.row
		row.Times = min(row.Count(), 10)
		if row.Conn == "" {
			if _, err := w.probeRow(ctx, row, p.family); err != nil {
				return err
			}
		}
	}
	return observe.WritePcapng(b, captures...)
}
