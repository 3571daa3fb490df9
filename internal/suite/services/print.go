// SPDX-License-Identifier: Apache-2.0

package services

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Write writes the failing case for people: its states as manifests with the steps of kubectl, and the rows that fail.
func (f *Failure) Write(w io.Writer) error {
	fmt.Fprintf(w, "# %s, %s, %d smaller cases tried. Names stand for addresses: a1 and c1\n"+
		"# for those of the pods, balancer-N and external-N for addresses that lead to a node.\n", f.Case.ID, f.times(),
		f.Tries)
	var before State
	for i, s := range f.Case.States {
		fmt.Fprintf(w, "#\n# state %d\n", i+1)
		if s.Life != nil {
			fmt.Fprintf(w, "# %s\n", s.Life)
		}
		if err := writeChange(w, before, s); err != nil {
			return err
		}
		before = s
	}
	for _, p := range f.rows() {
		fmt.Fprintf(w, "#\n# %s: %s\n#   want %s\n#   got  %s\n", p.Step, p.Probe, p.Want, oneLine(p.Got))
	}
	return nil
}

// times tells how often the case has failed.
func (f *Failure) times() string {
	if f.Of == 0 {
		return "not played again"
	}
	return fmt.Sprintf("played again %d times, failed %d times", f.Of, f.Again)
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// writeChange writes the steps from one state to the next.
func writeChange(w io.Writer, from, to State) error {
	for _, kind := range []struct {
		name string
		gone []string
	}{
		{"networkpolicy", missing(from.Policies, to.Policies)},
		{"endpointslice", missing(from.Slices, to.Slices)}, {"service", missing(from.Services, to.Services)},
		{"pod", missing(from.Pods, to.Pods)},
	} {
		for _, name := range kind.gone {
			fmt.Fprintf(w, "# kubectl delete %s %s\n", kind.name, name)
		}
	}
	var objects []store.Object
	var after []string
	for _, p := range differing(from.Pods, to.Pods) {
		bare := p.DeepCopy()
		bare.DeletionTimestamp, bare.Status = nil, corev1.PodStatus{}
		objects = append(objects, bare)
		if old := find(from.Pods, p.Name); old != nil && !isAnother(old, p) {
			objects = objects[:len(objects)-1]
		}
		if p.DeletionTimestamp != nil {
			after = append(after, fmt.Sprintf("kubectl delete pod %s --wait=false, which it survives, ready=%t", p.Name,
				ready(p)))
		} else if !ready(p) || find(from.Pods, p.Name) != nil {
			after = append(after, fmt.Sprintf("pod %s becomes ready=%t", p.Name, ready(p)))
		}
	}
	for _, s := range differing(from.Services, to.Services) {
		bare := s.DeepCopy()
		bare.Status = corev1.ServiceStatus{}
		objects = append(objects, bare)
		status := map[string]any{"status": s.Status}
		if text, err := json.Marshal(status); err == nil && len(s.Status.LoadBalancer.Ingress) > 0 {
			after = append(after, fmt.Sprintf("kubectl patch service %s --subresource=status --patch '%s'", s.Name, text))
		}
	}
	for _, e := range differing(from.Slices, to.Slices) {
		objects = append(objects, e)
	}
	for _, p := range differing(from.Policies, to.Policies) {
		objects = append(objects, p)
	}
	if len(objects) > 0 {
		fmt.Fprintln(w, "# kubectl apply -f - <<END")
	}
	if err := manifest.Encode(w, objects...); err != nil {
		return err
	}
	for _, text := range after {
		fmt.Fprintln(w, "# "+text)
	}
	return nil
}

// missing returns the names of those objects that the next state does not have.
func missing[T store.Object](from, to []T) (names []string) {
	for _, o := range from {
		if !slices.ContainsFunc(to, func(n T) bool { return n.GetName() == o.GetName() }) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// differing returns the objects that are new or not the same as before.
func differing[T store.Object](from, to []T) (out []T) {
	for _, o := range to {
		i := slices.IndexFunc(from, func(old T) bool { return old.GetName() == o.GetName() })
		if i < 0 || !reflect.DeepEqual(from[i], o) {
			out = append(out, o)
		}
	}
	return out
}

// folder is where failing cases are kept below the folder of a run's report.
const folder = "random"

// File returns the file that Save writes for Saved. Beside it is the one for people, with the suffix .yaml.
func (f *Failure) File(out, proxier string) string {
	return filepath.Join(out, folder, proxier, f.Case.ID+".json")
}

// Save writes the failing case below the folder, for Saved and for people. It replaces what it has written before.
func (f *Failure) Save(out, proxier string) error {
	file := f.File(out, proxier)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(f.Case, "", "  ")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := f.Write(&text); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, append(data, '\n'), 0o644),
		os.WriteFile(strings.TrimSuffix(file, ".json")+".yaml", text.Bytes(), 0o644))
}

// Saved returns the cases that earlier runs have saved for a proxier below the folder, none if there are none.
func Saved(out, proxier string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(out, folder, proxier, "*.json"))
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var c Case
		if err := json.Unmarshal(data, &c); err != nil {
			return nil, fmt.Errorf("%s: %w; delete it if you do not need it", name, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}
