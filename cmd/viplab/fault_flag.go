// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/suite/spec"
)

// faultFlag is --fault, the name of a fault or empty.
type faultFlag string

// add adds the flag. notice are those that may notice the fault.
func (f *faultFlag) add(cmd *cobra.Command, notice string) {
	cmd.Flags().StringVar((*string)(f), "fault", "", "put this fault into the proxiers, to see which "+notice+" fail "+
		"(viplab prove --list shows their names)")
	complete(cmd, "fault", faults.Names()...)
}

func (f faultFlag) check() error {
	if f == "" {
		return nil
	}
	_, err := faults.Find(string(f))
	return inFlag("fault", err)
}

// seed replaces the proxiers, and the enforcer if there is one, by those with the fault. Without a fault it changes
// nothing and returns nil. Call it inside the sandbox.
func (f faultFlag) seed(
	ctx context.Context, proxiers *[]spec.Proxier, enforcer *spec.Proxier,
) (*faults.Seeding, error) {
	if f == "" {
		return nil, nil
	}
	fault, err := faults.Find(string(f))
	if err != nil {
		return nil, err
	}
	programs, last := slices.Clone(*proxiers), len(*proxiers)
	if *enforcer != nil {
		programs = append(programs, *enforcer)
	}
	s, err := faults.Seed(ctx, fault, programs...)
	if err != nil {
		return nil, err
	}
	if *proxiers = s.Proxiers[:last]; *enforcer != nil {
		*enforcer = s.Proxiers[last]
	}
	return s, nil
}
