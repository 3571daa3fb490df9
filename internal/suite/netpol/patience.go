// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/suite/netpol/misread"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// judgePatiently judges an enforcer that does not say when it obeys. Packets say it: each table is fired until it is as
// it has to be, and then once more. So that what is left of the case before is not taken for this one, something else
// comes first that differs from it in as many cells as can be: everything is denied, or, if the case denies it all,
// nothing.
func (b *Bench) judgePatiently(ctx context.Context, c Case, reading *misread.Reading) ([]Verdict, error) {
	first := Case{ID: "before " + c.ID, Policies: denyAll(), NamedPorts: c.NamedPorts}
	judged, err := c.judgeAt(b.options.Placement, b.options.Stack)
	if err != nil {
		return nil, err
	}
	table := tableOf(judged, b.options.Stack.Families()[0])
	if table.Blocked() == Cells-4*len(Pods) {
		first.Policies = nil
	}
	verdicts, err := b.judgeInTime(ctx, first, nil)
	if err != nil {
		return nil, err
	}
	if verdict, wrong := SumUp(verdicts, nil); verdict != spec.Pass {
		return nil, &ApplyError{"all nodes", fmt.Errorf("%d policies that came before those of the case are not obeyed "+
			"after %v: %w", len(first.Policies), b.options.Patience, wrong)}
	}
	return b.judgeInTime(ctx, c, reading)
}

// judgeInTime applies a case, and fires its tables until they are right or patience ends.
func (b *Bench) judgeInTime(ctx context.Context, c Case, reading *misread.Reading) ([]Verdict, error) {
	judged, err := b.apply(ctx, c, reading)
	if err != nil {
		return nil, err
	}
	return b.await(ctx, judged)
}

// denyAll are policies that isolate every pod in both directions.
func denyAll() []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy
	for _, ns := range Namespaces {
		out = append(out, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deny-all"},
			Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress,
				networkingv1.PolicyTypeEgress}},
		})
	}
	return out
}

// await fires tables until all are right, twice in a row, or patience ends; then it returns the last ones.
func (b *Bench) await(ctx context.Context, judged *oracle.Cluster) (verdicts []Verdict, err error) {
	patient, cancel := context.WithTimeout(ctx, machine.Limit(b.options.Patience))
	defer cancel()
	row := 0
	var broken error
	err = observe.Await(patient, nil, func(context.Context) error {
		if verdicts, broken = b.compare(ctx, judged); broken != nil {
			return nil
		}
		_, wrong := SumUp(verdicts, nil)
		if wrong != nil {
			row = 0
			return wrong
		}
		if row++; row < 2 {
			return errors.New("right for the first time")
		}
		return nil
	})
	if broken != nil || ctx.Err() != nil {
		return nil, errors.Join(broken, ctx.Err())
	}
	_ = err // that patience has ended; what is wrong is in the verdicts
	return verdicts, nil
}
