// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	kjson "sigs.k8s.io/json"

	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/scenarios/networkpolicy"
	"github.com/viplab/viplab/suite/spec"
)

// Case is a set of policies and the table of what they block.
type Case struct {
	ID       string
	Priority spec.Priority
	// Given describes the policies in a phrase. Source is the document that requires the table, and Why quotes or sums
	// it up.
	Given, Why, Source string
	// Policies are for IPv4, without the API's defaults.
	Policies []*networkingv1.NetworkPolicy
	// NamedPorts are names of ports in addition to those of the grid.
	NamedPorts NamedPorts
	// Blocked is the table for IPv4. Nil means that only the oracle judges the case.
	Blocked *Table
}

// Static returns the cases that come with the program.
func Static() ([]Case, error) { return Load("cases.json", networkpolicy.Cases) }

// Load reads cases: a file in the form of the built-in one, or a manifest of NetworkPolicies, which is one case without
// a table. It checks policies as the API server would, and reports all mistakes at once.
func Load(source string, data []byte) ([]Case, error) {
	cases, err := decode(source, data)
	if err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("%s: no cases", source)
	}
	var errs []error
	ids := map[string]bool{}
	for i := range cases {
		c := &cases[i]
		if ids[c.ID] {
			errs = append(errs, fmt.Errorf("%s: case %s: id: is given twice", source, c.ID))
		}
		ids[c.ID] = true
		if err := c.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s: case %s: %w", source, c.ID, err))
		}
	}
	return cases, errors.Join(errs...)
}

// check admits the policies and compares the table with the oracle's.
func (c *Case) check() error {
	judged, err := c.Cluster(lab.IPv4)
	if err != nil {
		return err
	}
	if want := tableOf(judged, lab.V4); c.Blocked != nil && want != *c.Blocked {
		return fmt.Errorf("blocked: the API says otherwise of %s", differences(&want, c.Blocked))
	}
	return nil
}

// Cluster returns the grid at its planned addresses with the policies of the case, as the API serves them.
func (c *Case) Cluster(stack lab.Stack) (*oracle.Cluster, error) {
	store, err := planStore(stack, c.NamedPorts)
	if err != nil {
		return nil, err
	}
	bits := hostBits{}
	for i, p := range forStack(c.Policies, stack) {
		if err := store.Apply(bits.strip(p)); err != nil {
			return nil, fmt.Errorf("policy %d: %w", i+1, err)
		}
	}
	return oracle.FromSnapshot(store.View(bits.restore).Snapshot()), nil
}

// tableOf returns the oracle's table in one IP family.
func tableOf(c *oracle.Cluster, f lab.Family) Table { return tableBy(c, f, c.Allows) }

// tableBy returns the table of a judge.
func tableBy(c *oracle.Cluster, f lab.Family, allows func(oracle.Flow) bool) (t Table) {
	ends := endsOf(c, f)
	for i := range t {
		cell := CellAt(i)
		p := Ports[cell.Port]
		t[i] = !allows(oracle.Flow{From: ends[cell.From], To: ends[cell.To], Protocol: p.Protocol, Port: p.Number})
	}
	return t
}

func endsOf(c *oracle.Cluster, f lab.Family) [9]oracle.End {
	var ends [9]oracle.End
	for _, p := range c.Pods {
		i := slices.Index(Pods, p.Namespace+"/"+p.Name)
		for _, a := range p.Addrs {
			if i >= 0 && lab.FamilyOf(a) == f {
				ends[i] = oracle.End{Addr: a, Pod: p}
			}
		}
	}
	return ends
}

// differences names the first few cells in which two tables differ.
func differences(want, got *Table) string {
	var out []string
	for i := range want {
		if want[i] == got[i] {
			continue
		}
		if len(out) == 5 {
			return strings.Join(out, ", ") + ", ..."
		}
		word := "open"
		if want[i] {
			word = "blocked"
		}
		out = append(out, fmt.Sprintf("%s (%s)", CellAt(i), word))
	}
	return strings.Join(out, ", ")
}

// caseFile is a file of cases; see docs/netpol.md.
type caseFile struct {
	Grid  json.RawMessage   `json:"grid"` // ignored; the grid is always the same
	Cases []json.RawMessage `json:"cases"`
}

type writtenCase struct {
	ID              string                         `json:"id"`
	Priority        spec.Priority                  `json:"priority"`
	Given           string                         `json:"given"`
	Why             string                         `json:"why"`
	Source          string                         `json:"source"`
	Policies        []json.RawMessage              `json:"policies"`
	ExtraNamedPorts map[string][][]json.RawMessage `json:"extraNamedPorts"`
	// the number of cells in blocked, to detect typing errors
	BlockedNonSelf *int      `json:"blockedNonSelf"`
	Blocked        *[]string `json:"blocked"`
	KillsMutants   []string  `json:"killsMutants"` // informative
}

func decode(source string, data []byte) ([]Case, error) {
	var probe struct{ Cases json.RawMessage }
	isJSON := bytes.HasPrefix(bytes.TrimSpace(data), []byte("{"))
	if !isJSON || json.Unmarshal(data, &probe) == nil && probe.Cases == nil {
		name := filepath.Base(source)
		policies, err := policiesOf(source, data)
		return []Case{{ID: strings.TrimSuffix(name, filepath.Ext(name)), Priority: spec.P1,
			Given: "the policies of " + name, Source: source, Policies: policies}}, err
	}
	var file caseFile
	if err := strictly(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	var out []Case
	var errs []error
	for i, text := range file.Cases {
		var name struct{ ID string }
		_ = json.Unmarshal(text, &name) // the strict decoder reports mistakes
		at := fmt.Sprintf("%s: case %s", source, name.ID)
		if name.ID == "" {
			at = fmt.Sprintf("%s: cases[%d]", source, i)
			errs = append(errs, fmt.Errorf("%s: id: is missing", at))
		}
		var w writtenCase
		if err := strictly(text, &w); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
			continue
		}
		c, err := w.read()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
		}
		out = append(out, c)
	}
	return out, errors.Join(errs...)
}

// strictly decodes JSON. Unknown and repeated fields are errors.
func strictly(data []byte, into any) error {
	slips, err := kjson.UnmarshalStrict(data, into)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%s: want %s, got %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return errors.Join(append(slips, err)...)
}

func (w *writtenCase) read() (Case, error) {
	c := Case{ID: w.ID, Priority: cmp.Or(w.Priority, spec.P1), Given: w.Given, Why: w.Why, Source: w.Source,
		NamedPorts: NamedPorts{}}
	var errs []error
	for i, text := range w.Policies {
		policies, err := policiesOf(fmt.Sprintf("policies[%d]", i), text)
		c.Policies, errs = append(c.Policies, policies...), append(errs, err)
	}
	for pod, ports := range w.ExtraNamedPorts {
		for _, words := range ports {
			p, err := readNamedPort(pod, words)
			if err != nil {
				errs = append(errs, fmt.Errorf("extraNamedPorts: %s: %w", pod, err))
			}
			c.NamedPorts[pod] = append(c.NamedPorts[pod], p)
		}
	}
	if w.Blocked != nil {
		c.Blocked = &Table{}
		for _, line := range *w.Blocked {
			if err := c.Blocked.block(line); err != nil {
				errs = append(errs, fmt.Errorf("blocked: %w", err))
			}
		}
		if n := c.Blocked.Blocked(); w.BlockedNonSelf != nil && *w.BlockedNonSelf != n {
			errs = append(errs, fmt.Errorf("blockedNonSelf: %d, but blocked names %d cells", *w.BlockedNonSelf, n))
		}
	}
	return c, errors.Join(errs...)
}

// readNamedPort decodes a named port such as ["http", 80, "TCP"].
func readNamedPort(pod string, words []json.RawMessage) (NamedPort, error) {
	var name, protocol string
	var number int32
	if pods, err := podsNamed(pod); err != nil || len(pods) != 1 {
		return NamedPort{}, fmt.Errorf("no such pod in the grid: there are %s", strings.Join(Pods, ", "))
	}
	if len(words) != 3 || json.Unmarshal(words[0], &name) != nil || json.Unmarshal(words[1], &number) != nil ||
		json.Unmarshal(words[2], &protocol) != nil {
		return NamedPort{}, errors.New(`want [NAME, NUMBER, PROTOCOL], for example ["http", 80, "TCP"]`)
	}
	port := Port{number, corev1.Protocol(protocol)}
	if !slices.Contains(Ports, port) {
		return NamedPort{}, fmt.Errorf("no port %q in the grid: there are %v", port, Ports)
	}
	return NamedPort{name, port}, nil
}

// policiesOf returns the policies of a manifest. Those without a namespace get x.
func policiesOf(source string, data []byte) ([]*networkingv1.NetworkPolicy, error) {
	objects, err := manifest.Decode(source, data)
	if err != nil {
		return nil, err
	}
	var out []*networkingv1.NetworkPolicy
	for _, o := range objects {
		p, ok := o.(*networkingv1.NetworkPolicy)
		if !ok {
			kind := store.ResourceOf(o).Kind
			return nil, fmt.Errorf("%s: %s %q: want NetworkPolicies alone", source, kind, store.KeyOf(o))
		}
		if p.Namespace == "" {
			p.Namespace = Namespaces[0]
		}
		out = append(out, p)
	}
	return out, nil
}
