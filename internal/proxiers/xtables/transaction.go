// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"slices"
)

// TableName is the name of a table.
type TableName string

// The tables in use.
const (
	Filter TableName = "filter"
	Mangle TableName = "mangle"
	NAT    TableName = "nat"
)

// Transaction is an atomic change of one table. The zero value with a Table changes nothing.
type Transaction struct {
	Table    TableName
	declared bytes.Buffer
	rules    bytes.Buffer
	deleted  []string
}

// Write gives a chain exactly these rules. It creates the chain if it does not exist.
func (t *Transaction) Write(chain string, rules []Rule) {
	t.declare(chain)
	for _, r := range rules {
		t.line("-A", chain, r)
	}
}

// Append puts a rule at the end of a chain that exists.
func (t *Transaction) Append(chain string, r Rule) { t.line("-A", chain, r) }

// Insert puts a rule at the head of a chain that exists.
func (t *Transaction) Insert(chain string, r Rule) { t.line("-I", chain, r) }

// Remove removes a rule from a chain. The rule must exist.
func (t *Transaction) Remove(chain string, r Rule) { t.line("-D", chain, r) }

// Delete deletes a chain with its rules, after everything else of the transaction. Nothing may jump to it then.
func (t *Transaction) Delete(chain string) {
	t.declare(chain)
	t.deleted = append(t.deleted, chain)
}

// IsEmpty reports whether the transaction changes nothing.
func (t *Transaction) IsEmpty() bool { return t.declared.Len() == 0 && t.rules.Len() == 0 }

// declare writes a line that creates a chain, or, as restore is run with --noflush, empties it if it exists.
func (t *Transaction) declare(chain string) {
	t.declared.WriteByte(':')
	t.declared.WriteString(chain)
	t.declared.WriteString(" - [0:0]\n")
}

func (t *Transaction) line(op, chain string, r Rule) {
	t.rules.WriteString(op)
	t.rules.WriteByte(' ')
	t.rules.WriteString(chain)
	if r != "" {
		t.rules.WriteByte(' ')
		t.rules.WriteString(string(r))
	}
	t.rules.WriteByte('\n')
}

// Merge returns one transaction that does what several on the same table do.
func Merge(table TableName, all ...*Transaction) *Transaction {
	m := &Transaction{Table: table}
	for _, t := range all {
		m.declared.Write(t.declared.Bytes())
		m.rules.Write(t.rules.Bytes())
		m.deleted = append(m.deleted, t.deleted...)
	}
	return m
}

// Script returns the input for iptables-restore that carries out the transactions one after the other.
func Script(all ...*Transaction) []byte {
	var b bytes.Buffer
	for _, t := range all {
		if t.IsEmpty() {
			continue
		}
		b.WriteString("*" + string(t.Table) + "\n")
		b.Write(t.declared.Bytes())
		b.Write(t.rules.Bytes())
		for _, chain := range slices.Compact(slices.Sorted(slices.Values(t.deleted))) {
			b.WriteString("-X " + chain + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	return b.Bytes()
}
