// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/suite/netpol/misreading"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/exec"
	"github.com/viplab/viplab/suite/spec"
)

func enforcerNamed(name string) (spec.Proxier, error) {
	all := proxiers.Enforcers()
	i := slices.IndexFunc(all, func(e spec.Proxier) bool { return e.Name() == name })
	if i < 0 {
		known := strings.Join(enforcerNames(), ", ")
		return nil, fmt.Errorf("--enforcer: unknown enforcer %q: there are %s", name, known)
	}
	return all[i], nil
}

// selectEnforcers finds the enforcers to judge: those of --enforcer, or the command of --exec.
func (f *netpolFlags) selectEnforcers(r *netpolRun) error {
	switch {
	case f.exec == "" && (f.name != "" || f.given("patience")):
		return errors.New("--name and --patience require --exec")
	case f.exec != "" && f.given("enforcer"):
		return errors.New("--enforcer names enforcers of viplab's own, and --exec another one: judge them in two runs")
	case len(f.enforcers) == 0:
		return noEnforcer()
	case f.exec != "" && f.patience <= 0:
		return fmt.Errorf("--patience: %v: want a positive time", f.patience)
	case f.exec != "" && f.prove:
		return errors.New("--prove: puts faults into built-in enforcers, so it cannot be combined with --exec")
	}
	if f.exec == "" {
		var errs []error
		for _, name := range f.enforcers {
			e, err := enforcerNamed(name)
			r.enforcers, errs = append(r.enforcers, e), append(errs, err)
		}
		return errors.Join(errs...)
	}
	c := exec.Command{Name: f.name, Features: spec.Features(spec.NetworkPolicy), Unconfirmed: true}
	e, err := program(f.exec, c)
	r.enforcers, r.options.Patience = []spec.Proxier{e}, f.patience
	return err
}

func (f *netpolFlags) selectProxier(r *netpolRun) error {
	if f.proxier == "" {
		return nil
	}
	one := proxierFlags{names: []string{f.proxier}, given: func(string) bool { return false }}
	found, err := one.proxiers()
	if err != nil {
		return err
	}
	if r.options.Proxier = found[0]; !found[0].Features()[spec.KernelNAT] {
		return fmt.Errorf("--proxier: %s hides clients from servers, so its Services cannot show policies", f.proxier)
	}
	return nil
}

// selectFault finds the fault of --fault (a misreading, or a fault in the rules that enforcers write), or the faults
// that --prove tries.
func (f *netpolFlags) selectFault(r *netpolRun) (err error) {
	i := slices.IndexFunc(faults.Enforced, func(x faults.Fault) bool { return x.Name == f.fault })
	readings := misreading.Given()
	j := slices.IndexFunc(readings, func(x misreading.Reading) bool { return x.Name == f.fault })
	switch {
	case f.fault == "":
	case f.prove && max(i, j) >= 0:
		r.only = regexp.MustCompile(exactly([]string{f.fault}))
	case f.prove:
		if r.only, err = regexp.Compile(f.fault); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	case i >= 0:
		r.fault = &faults.Enforced[i]
	case j >= 0:
		r.options.Misreading = &readings[j]
	default:
		return fmt.Errorf("--fault: unknown fault %q: there are %s", f.fault, strings.Join(enforcerFaults(), ", "))
	}
	return nil
}

func enforcerFaults() []string {
	return append(misreading.Names(), each(faults.Enforced, func(f faults.Fault) string { return f.Name })...)
}
