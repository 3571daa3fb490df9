// SPDX-License-Identifier: Apache-2.0

// Package nft drives nft: tables of a namespace, each of them changed in transactions.
package nft

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/lab/program"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// Table is a table in a namespace, which may not exist.
type Table struct {
	NS     *netns.NS // where it is
	family knftables.Family
	name   string
	nft    knftables.Interface
}

// Open prepares to work on a table. A missing program nft is a *spec.UnusableError.
func Open(ns *netns.NS, family knftables.Family, name string) (*Table, error) {
	if _, err := kit.LookUp("nft", "nftables"); err != nil {
		return nil, err
	}
	t := &Table{NS: ns, family: family, name: name}
	err := ns.Do(func() (err error) {
		t.nft, err = knftables.New(family, name)
		return err
	})
	return t, err
}

// Transaction returns a new, empty transaction.
func (t *Table) Transaction() *knftables.Transaction { return t.nft.NewTransaction() }

// Run carries out a transaction, all of it or nothing.
func (t *Table) Run(ctx context.Context, tx *knftables.Transaction) error {
	if tx.NumOperations() == 0 {
		return nil
	}
	if err := t.NS.Do(func() error { return t.nft.Run(ctx, tx) }); err != nil {
		return fmt.Errorf("%s: nft: table %s %s: %w", t.NS.Name(), t.family, t.name, complaint(err))
	}
	return nil
}

// RunAny carries out the first of several sequences of transactions that the kernel accepts.
func (t *Table) RunAny(ctx context.Context, ways ...[]*knftables.Transaction) (err error) {
	for _, way := range ways {
		err = nil
		for i := 0; i < len(way) && err == nil; i++ {
			err = t.Run(ctx, way[i])
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// Destroy adds the deletion of the table to a transaction, whether the table exists or not.
func Destroy(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
}

// Remove removes the table.
func (t *Table) Remove(ctx context.Context) error {
	tx := t.Transaction()
	Destroy(tx)
	return t.Run(ctx, tx)
}

// Holdings returns the names of what the table holds, by kind ("chain", "set", "map"), nil if there is no table.
func (t *Table) Holdings(ctx context.Context) (map[string][]string, error) {
	var all map[string][]string
	err := t.NS.Do(func() (err error) {
		all, err = t.nft.ListAll(ctx)
		return err
	})
	if knftables.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: nft: list table %s %s: %w", t.NS.Name(), t.family, t.name, complaint(err))
	}
	return all, nil
}

// Text returns the table as nft prints it, empty if there is none.
func (t *Table) Text(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "nft", "list", "table", string(t.family), t.name)
	text, err := program.Output(cmd, t.NS.Run)
	if err != nil {
		if holdings, listErr := t.Holdings(ctx); listErr == nil && holdings == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %s: %w", t.NS.Name(), strings.Join(cmd.Args, " "), err)
	}
	return []byte(text), nil
}

// complaint returns the beginning of an error of nft, which may quote a line for each of thousands of commands.
func complaint(err error) error {
	lines := strings.SplitN(strings.TrimSpace(err.Error()), "\n", 4)
	return errors.New(strings.Join(lines[:min(len(lines), 3)], "\n"))
}

// Unusable turns an error of a probe into a *spec.UnusableError. what are the rules that the probe tried.
func Unusable(ctx context.Context, err error, what string) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &spec.UnusableError{
		Missing: "the expressions of nftables that " + what + " are made of",
		Cure: fmt.Sprintf("take nft 1.0.6 or later and Linux 5.13 or later, with the modules that are asked for (%v)",
			err),
	}
}
