// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// failedRows is the error for rows that did not hold. Its text is a table of all rows that were probed together, with
// their wanted and actual results.
type failedRows struct {
	probes []*probed
	facts  spec.Facts
}

func (f failedRows) Error() string {
	var b strings.Builder
	wrong := 0
	for _, p := range f.probes {
		if len(p.wrong) > 0 && !p.known {
			wrong++
		}
	}
	fmt.Fprintf(&b, "%d of %d rows do not hold\n", wrong, len(f.probes))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tprobe\twant\tgot")
	for _, p := range f.probes {
		mark := "✓"
		switch {
		case p.known:
			mark = "k"
		case len(p.wrong) > 0:
			mark = "✗"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", mark, p.row.Probe(p.family), p.row.Wants(), p.got(f.facts))
	}
	t.Flush()
	printTraces(&b, f.probes)
	return strings.TrimRight(b.String(), "\n")
}

// explain writes the evidence of a failure into a new folder and adds its path to the result. If a piece of evidence is
// not available, it writes the reason instead. It never changes the verdict.
func (w *world) explain(ctx context.Context, result *spec.Result) {
	out := w.cell.out
	if out == "" {
		return
	}
	folder := w.cell.folder()
	keep := func(name string, write func(io.Writer) error) {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			fmt.Fprintf(&b, "\n(not complete: %v)\n", err)
		}
		file := filepath.Join(folder, name)
		path := filepath.Join(out, file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, b.Bytes(), 0o644)
		}
		if err != nil {
			result.Reason += fmt.Sprintf("\n(%v)", err)
			return
		}
		result.Files = append(result.Files, file)
	}
	for _, n := range w.Lab().Nodes() {
		for _, f := range w.env.fleets() {
			if a := f.agent(n.Name()); a != nil {
				keep(n.Name()+f.rules(), func(b io.Writer) error { return a.dump(ctx, b) })
			}
		}
		keep(n.Name()+"-conntrack.txt", func(b io.Writer) error { return w.dumpFlows(ctx, b, n.Name()) })
		keep(n.Name()+"-network.txt", func(b io.Writer) error { return w.dumpNetwork(ctx, b, n.NS) })
	}
	keep("cluster.yaml", w.dumpCluster)
	for _, f := range w.env.fleets() {
		keep(string(f.role)+".log", func(b io.Writer) error {
			_, err := io.WriteString(b, f.logs.String())
			return err
		})
	}
	for _, t := range w.record.traces {
		keep(t.file(".txt"), t.print)
		if t.traced != nil {
			keep(t.file(".json"), t.encode)
		}
	}
	keep("packets.pcapng", func(b io.Writer) error {
		if len(w.record.captures) > 0 {
			return observe.WritePcapng(b, w.record.captures...)
		}
		return w.recapture(ctx, b)
	})
	keep("failure.txt", func(b io.Writer) error {
		_, err := fmt.Fprintf(b, "%s on %s\n%s\n\n%s\n\nagain: %s\n", w.cell.Scenario.ID, w.cell.Proxier.Name(),
			w.cell.Scenario.Why, result.Reason, w.cell.rerun)
		return err
	})
	result.Reason += fmt.Sprintf("\nfiles: %s\nagain: %s", filepath.Join(out, folder), w.cell.rerun)
}

func (w *world) dumpFlows(ctx context.Context, b io.Writer, node string) error {
	flows, err := w.Flows(ctx, node, func(observe.Flow) bool { return true })
	for _, f := range flows {
		fmt.Fprintln(b, f)
	}
	return err
}

// dumpNetwork writes links, addresses, routes, the whole nf_tables ruleset, ipsets, virtual servers and the kernel's
// own counters of a namespace.
func (w *world) dumpNetwork(ctx context.Context, b io.Writer, ns *netns.NS) error {
	for _, argv := range [][]string{
		{"ip", "-d", "address"}, {"ip", "route", "show", "table", "all"}, {"ip", "-6", "route"}, {"ip", "neighbour"},
		{"nft", "-a", "list", "ruleset"}, {"ipset", "list"},
	} {
		fmt.Fprintf(b, "# %s\n", strings.Join(argv, " "))
		text, err := w.Run(ctx, ns.Name(), argv...)
		if err != nil {
			text = err.Error()
		}
		fmt.Fprintln(b, text)
	}
	return ns.Do(func() error {
		for _, name := range []string{"ip_vs", "ip_vs_conn", "snmp", "netstat", "stat/nf_conntrack"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, "ip_vs") {
				continue // requires a loaded module
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "# /proc/net/%s\n%s\n", name, text)
		}
		return nil
	})
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
	return store.Encode(b, own...)
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
