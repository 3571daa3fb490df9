// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/lab"
)

// parts are what the table is made of, beyond the frame. Parts are compared by value: one that is to change is an old
// one that goes and a new one that comes.
type parts struct {
	containers []container
	chains     []chain
	elements   []nft.Element
}

// chain is a chain with its rules, one a line, and what it is for.
type chain struct{ name, comment, rules string }

func (c chain) object() *knftables.Chain {
	return &knftables.Chain{Name: c.name, Comment: nft.Comment(c.comment)}
}

func newChain(name, comment string, rules ...string) chain {
	return chain{name, comment, strings.Join(rules, "\n")}
}

// container is a set of clients that are remembered for a while, or, with no time out, a map from frontends to
// endpoints.
type container struct {
	name    string
	timeout time.Duration
}

func (c container) object(f lab.Family) knftables.Object {
	if c.timeout == 0 {
		return &knftables.Map{Name: c.name, Type: frontendType(f) + " : " + nft.AddrType(f) + " . inet_service"}
	}
	return &knftables.Set{
		Name: c.name, Type: nft.AddrType(f), Timeout: &c.timeout,
		Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag},
	}
}

// write adds to a transaction the change from parts that go to parts that come. The order is that of references: an
// element may name a chain, and a rule a chain or a set, so what is named comes before it and goes after it.
func write(tx *knftables.Transaction, f lab.Family, gone, come parts) {
	for _, e := range gone.elements {
		tx.Delete(e.Object())
	}
	for _, c := range come.containers {
		tx.Add(c.object(f))
	}
	stays := map[string]bool{}
	for _, c := range come.chains {
		stays[c.name] = true
		tx.Add(c.object())
	}
	for _, c := range gone.chains {
		tx.Flush(&knftables.Chain{Name: c.name})
	}
	for _, c := range come.chains {
		for rule := range strings.Lines(c.rules) {
			tx.Add(&knftables.Rule{Chain: c.name, Rule: strings.TrimSpace(rule)})
		}
	}
	for _, e := range come.elements {
		tx.Add(e.Object())
	}
	for _, c := range gone.chains {
		if !stays[c.name] {
			tx.Delete(&knftables.Chain{Name: c.name})
		}
	}
	for _, c := range gone.containers {
		tx.Delete(c.object(f))
	}
}
