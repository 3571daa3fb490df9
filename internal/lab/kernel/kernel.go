// SPDX-License-Identifier: Apache-2.0

// Package kernel finds out what this machine can do for a lab, by doing it in a throwaway network namespace.
//
// No record of what a kernel can do is reliable: its configuration may be missing, a module may load only for root, a
// container may forbid it, and some interfaces report success for a missing feature. So each probe makes the thing and
// looks at it. Kernel modules that this loads stay loaded.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Status is the answer to a probe.
type Status int

// The answers. Unknown is the zero value: nothing is claimed that was not tried.
const (
	Unknown Status = iota // could not be tried
	Lacks
	Has
)

func (s Status) String() string { return [...]string{"unknown", "no", "yes"}[s] }

// MarshalText makes the status a word in JSON.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reverses MarshalText. Any other word is Unknown.
func (s *Status) UnmarshalText(text []byte) error {
	*s = map[string]Status{"no": Lacks, "yes": Has}[string(text)]
	return nil
}

// Feature names what is probed.
type Feature string

// Probe is one question to the machine.
type Probe struct {
	Feature Feature
	// For is what uses the feature: "overlay ipip", "proxier ipvs".
	For string
	// Module is the kernel module that brings it, Package the Debian package, Cure what else to do where it is missing.
	Module, Package, Cure string
	// Required says that without it not even the main job can be done: to judge the built-in iptables proxier.
	Required bool
	// try returns a detail such as a version if the feature works, a *lack if it is missing, or another error.
	try func(ctx context.Context, ns *netns.NS) (detail string, err error)
	// bare probes need no namespace.
	bare bool
}

// Finding is the answer to a probe.
type Finding struct {
	Feature  Feature `json:"feature"`
	Status   Status  `json:"status"`
	Detail   string  `json:"detail,omitempty"` // a version, or what the kernel or program said
	For      string  `json:"for"`
	Module   string  `json:"module,omitempty"`  // what would bring it, if it is lacking:
	Package  string  `json:"package,omitempty"` // a kernel module, a Debian package,
	Cure     string  `json:"cure,omitempty"`    // or something else
	Required bool    `json:"required"`
	InVM     bool    `json:"in_vm"` // lacking here, but the kernels of scripts/vm have it
}

// lack is the answer no.
type lack struct{ why string }

func (l *lack) Error() string { return l.why }

// lacking turns the errors for a missing feature into a *lack. Others, such as EPERM, leave it unknown.
func lacking(err error) error {
	for _, no := range []error{
		unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ENOPROTOOPT,
		unix.ENOENT, unix.ENOSYS, unix.ENODEV,
	} {
		if errors.Is(err, no) {
			return &lack{err.Error()}
		}
	}
	return err
}

// Named returns the probes of features, in the order of Probes. A name that is none of theirs is an error.
func Named(features ...Feature) ([]Probe, error) {
	var known []string
	var found []Probe
	for _, p := range Probes() {
		known = append(known, string(p.Feature))
		if slices.Contains(features, p.Feature) {
			found = append(found, p)
		}
	}
	for _, f := range features {
		if !slices.Contains(known, string(f)) {
			return nil, fmt.Errorf("unknown feature %q: there are %s", f, strings.Join(known, ", "))
		}
	}
	return found, nil
}

// Programs returns those of some probes that make nothing, and so can be run outside a sandbox.
func Programs(probes []Probe) []Probe {
	return slices.DeleteFunc(slices.Clone(probes), func(p Probe) bool { return !p.bare })
}

// Examine asks questions, several at once. Findings are in the order of the probes.
func Examine(ctx context.Context, probes []Probe) []Finding {
	findings := make([]Finding, len(probes))
	var all errgroup.Group
	all.SetLimit(4)
	for i, p := range probes {
		all.Go(func() error {
			findings[i] = p.Run(ctx)
			return nil
		})
	}
	_ = all.Wait() // a finding holds its error
	return findings
}

// Run asks one question.
func (p Probe) Run(ctx context.Context) Finding {
	f := Finding{Feature: p.Feature, For: p.For, Required: p.Required}
	var err error
	f.Detail, err = p.inNamespace(ctx)
	no := (*lack)(nil)
	switch {
	case err == nil:
		f.Status = Has
	case errors.As(err, &no):
		f.Status, f.Detail = Lacks, no.why
		f.Module, f.Package, f.Cure, f.InVM = p.Module, p.Package, p.Cure, p.Module != ""
	default:
		f.Detail = err.Error()
	}
	f.Detail = oneLine(f.Detail)
	return f
}

func (p Probe) inNamespace(ctx context.Context) (string, error) {
	if p.bare {
		return p.try(ctx, nil)
	}
	ns, err := netns.New("probe")
	if err != nil {
		return "", err
	}
	detail, err := p.try(ctx, ns)
	return detail, errors.Join(err, ns.Close())
}

// oneLine keeps a table a table.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const width = 160
	if len(s) > width {
		s = fmt.Sprintf("%s...", s[:width])
	}
	return s
}
