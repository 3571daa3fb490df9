// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"context"
	"errors"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// applyOpposite makes an enforcer that does not report convergence apply a state that differs from the case in as many
// cells as possible: everything denied, or nothing if the case denies everything. So the test does not mistake stale
// rules of the last case for those of this one.
func (b *Bench) applyOpposite(ctx context.Context, right *oracle.Cluster) error {
	opposite := Case{Policies: denyAll(), NamedPorts: b.options.NamedPorts}
	table := tableOf(right, b.options.Stack.Families()[0])
	if table.Blocked() == Cells-len(Ports)*len(Pods) {
		opposite.Policies = nil
	}
	want, err := opposite.Cluster(b.options.Stack)
	if err != nil {
		return err
	}
	if err := b.apply(ctx, opposite.Policies, nil); err != nil {
		return err
	}
	verdicts, err := b.fireUntilRight(ctx, want)
	if err != nil {
		return err
	}
	if _, wrong := SumUp(verdicts, nil); wrong != nil {
		return &ApplyError{"all nodes", fmt.Errorf("the enforcer has not converged on the %d policies before those of "+
			"the case within %v: %w", len(opposite.Policies), b.options.Patience, wrong)}
	}
	return nil
}

func denyAll() []*networkingv1.NetworkPolicy {
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	var out []*networkingv1.NetworkPolicy
	for _, ns := range Namespaces {
		out = append(out, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deny-all"},
			Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: both},
		})
	}
	return out
}

// fireUntilRight fires tables until all are right twice in a row, or patience ends. It returns the last ones.
func (b *Bench) fireUntilRight(ctx context.Context, right *oracle.Cluster) (verdicts []Verdict, err error) {
	patient, cancel := context.WithTimeout(ctx, machine.Limit(b.options.Patience))
	defer cancel()
	inARow := 0
	var broken error
	// An error of Await means that patience has ended. The verdicts contain the failures.
	_ = observe.Await(patient, nil, func(context.Context) error {
		if verdicts, broken = b.fireTables(ctx, right); broken != nil {
			return nil
		}
		if verdict, wrong := SumUp(verdicts, nil); verdict != spec.Pass {
			inARow = 0
			return wrong
		}
		if inARow++; inARow < 2 {
			return errors.New("right for the first time")
		}
		return nil
	})
	if broken != nil || ctx.Err() != nil {
		return nil, errors.Join(broken, ctx.Err())
	}
	return verdicts, nil
}
