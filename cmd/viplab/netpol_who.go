// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/suite/netpol/misread"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/exec"
	"github.com/viplab/viplab/suite/spec"
)

// enforcerNamed is a built-in enforcer.
func enforcerNamed(name string) (spec.Proxier, error) {
	all := proxiers.Enforcers()
	i := slices.IndexFunc(all, func(e spec.Proxier) bool { return e.Name() == name })
	if i < 0 {
		return nil, fmt.Errorf("--enforcer: unknown enforcer %q: there are %s", name, strings.Join(enforcerNames(), ", "))
	}
	return all[i], nil
}

// outside makes an enforcer of the command of --exec.
func (f *netpolFlags) outside(r *netpolRun) error {
	switch {
	case f.exec == "" && f.name != "":
		return errors.New("--name: speaks of --exec, which is not given")
	case f.exec == "":
		return nil
	case f.patience <= 0:
		return fmt.Errorf("--patience: %v: want a time", f.patience)
	case f.prove:
		return errors.New("--prove: puts faults into built-in enforcers: no --exec beside it")
	}
	argv, err := exec.Split(f.exec)
	if err != nil {
		return fmt.Errorf("--exec: %w", err)
	}
	e, err := exec.New(exec.Command{
		Name: cmp.Or(f.name, filepath.Base(argv[0])), Argv: argv, Features: spec.Features(spec.NetworkPolicy),
		Unconfirmed: true,
	})
	if err != nil {
		return fmt.Errorf("--exec: %w", err)
	}
	r.enforcers, r.options.Patience = []spec.Proxier{e}, f.patience
	return nil
}

// beside finds the proxier of --proxier.
func (f *netpolFlags) beside(r *netpolRun) error {
	if f.proxier == "" {
		return nil
	}
	one := proxierFlags{names: []string{f.proxier}, given: func(string) bool { return false }}
	found, err := one.proxiers()
	if err != nil {
		return err
	}
	if r.options.Proxier = found[0]; !found[0].Features()[spec.KernelNAT] {
		return fmt.Errorf("--proxier: %s hides who calls from who is called, so policies cannot be judged through its "+
			"Services", f.proxier)
	}
	return nil
}

// seedWith finds a fault: a wrong reading, or something in what enforcers write.
func (r *netpolRun) seedWith(fault string) error {
	if fault == "" {
		return nil
	}
	if reading, err := misread.Find(fault); err == nil {
		r.options.Misread = &reading
		return nil
	}
	i := slices.IndexFunc(faults.Enforced, func(f faults.Fault) bool { return f.Name == fault })
	if i < 0 {
		return fmt.Errorf("--fault: unknown fault %q: there are %s", fault, strings.Join(enforcerFaults(), ", "))
	}
	r.fault = &faults.Enforced[i]
	return nil
}

// enforcerFaults are the values of --fault.
func enforcerFaults() []string {
	names := misread.Names()
	for _, f := range faults.Enforced {
		names = append(names, f.Name)
	}
	return names
}
