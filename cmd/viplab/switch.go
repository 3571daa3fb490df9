// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/suite/spec"
)

func newSwitch() *cobra.Command {
	var of labFlag
	var f proxierFlags
	cmd := &cobra.Command{
		Use:   "switch (--proxier NAME | --exec COMMAND)",
		Short: "Replace the proxier of a running lab",
		Long: `switch ends the proxier on every node, which removes its rules if it can, starts another one, and returns
when that has programmed the cluster's state. Pods and connections stay.`,
		Example: `  viplab switch --proxier nftables`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.given("proxier") && !f.given("exec") {
				return errors.New("want --proxier or --exec")
			}
			p, err := f.one()
			if err != nil {
				return err
			}
			l, err := of.find()
			if err != nil {
				return err
			}
			if err := prepare(cmd.Context(), []spec.Proxier{p}, cmd.ErrOrStderr()); err != nil {
				return err
			}
			if err := ask(cmd.Context(), l, live.Switch, f.arguments(p), nil); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "lab %s: proxier %s\n", l.Name, p.Name())
			return err
		},
	}
	f.addProxier(cmd, "iptables")
	of.add(cmd)
	return cmd
}

// one returns the only proxier that the flags name.
func (f *proxierFlags) one() (spec.Proxier, error) {
	found, err := f.proxiers()
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, errors.New("a lab has one proxier: want one --proxier, or --exec")
	}
	return found[0], nil
}

// switched returns the proxier that a request of "viplab switch" names by its flags.
func switched(_ context.Context, call *control.Call) (spec.Proxier, error) {
	var args []string
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	var f proxierFlags
	cmd := &cobra.Command{}
	f.addProxier(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	return f.one()
}
