// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"time"

	"github.com/viplab/viplab/internal/annotate"
	"github.com/viplab/viplab/internal/lab/ruleset"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab"
)

// Rules reads what is programmed on a node.
const Rules = "rules" // RulesArgs; the result is NodeRules

// RulesArgs are the arguments of Rules.
type RulesArgs struct {
	Node string
	// Service limits the rules to those that concern a Service, NAME or NAMESPACE/NAME. Empty means all.
	Service string
	// Namespace is that of a Service without one. Empty means default.
	Namespace string
}

// NodeRules are the rules of a node at one time, annotated.
type NodeRules struct {
	Lab      string    `json:"lab"`
	Node     string    `json:"node"`
	Proxier  string    `json:"proxier"`
	Enforcer string    `json:"enforcer,omitempty"`
	Service  string    `json:"service,omitempty"`
	Families []string  `json:"families"` // ruleset.IP, ruleset.IP6
	At       time.Time `json:"at"`
	*ruleset.Ruleset
}

func (l *Lab) rules(ctx context.Context, call *control.Call) (any, error) {
	var args RulesArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	n := l.standing.Cluster().Lab().Node(args.Node)
	if n == nil {
		return nil, fmt.Errorf("%q is not a node", args.Node)
	}
	if err := l.standing.Settle(ctx); err != nil {
		fmt.Fprintf(call.Stderr, "the programs on the nodes have not converged: %v\n", err)
	}
	return l.rulesOf(ctx, n, args)
}

// rulesOf reads and annotates the rules of a node.
func (l *Lab) rulesOf(ctx context.Context, n *lab.Node, args RulesArgs) (*NodeRules, error) {
	book, err := l.book(ctx, n.Name())
	if err != nil {
		return nil, err
	}
	r := &NodeRules{Lab: l.name, Node: n.Name(), At: time.Now()}
	r.Proxier, r.Enforcer = l.standing.Programs()
	for _, f := range l.standing.Cluster().Lab().Stack().Families() {
		r.Families = append(r.Families, ipFamilies[f])
	}
	if r.Ruleset, err = ruleset.Read(ctx, n.NS); err != nil {
		return nil, err
	}
	book.All(r.Ruleset)
	if args.Service == "" {
		return r, nil
	}
	key := Place{Name: args.Service, Namespace: args.Namespace}.Pod()
	if !book.Has(key) {
		return nil, fmt.Errorf("there is no Service %s", key)
	}
	r.Service = key.String()
	r.Ruleset = book.Narrow(r.Ruleset, key)
	return r, nil
}

// ipFamilies are the names of the families of IP in rulesets.
var ipFamilies = map[lab.Family]string{lab.V4: ruleset.IP, lab.V6: ruleset.IP6}

// book returns what annotates the rules of a node.
func (l *Lab) book(ctx context.Context, node string) (*annotate.Book, error) {
	remarks, err := l.standing.Remarks(ctx, node)
	if err != nil {
		return nil, err
	}
	return annotate.New(l.standing.Cluster().Store().Snapshot(), l.names(), remarks), nil
}
