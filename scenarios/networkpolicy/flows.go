// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// flows are the scenarios of connections that a policy comes to deny, and of packets of none.
func flows() []spec.Scenario {
	return []spec.Scenario{
		{
			ID:    "np-open-connection-denied",
			Needs: enforced,
			Given: four(),
			Steps: []spec.Step{
				{Name: "allowed", Rows: ongoing(spec.Row{By: []string{"a1"}})},
				step("denied", do(Apply(policy("p", pod("a1"), ingress()))), shut("a1", "b1", "b2"),
					ongoing(spec.Row{Want: spec.Reply | denied | spec.Reset, By: []string{"a1"},
						Choice: "an open connection that a policy comes to deny"})),
			},
		},
		{
			ID:    "np-unanswered-flow-denied",
			Needs: enforced,
			Given: four(),
			Steps: []spec.Step{{Check: eachFlow(oneWay)}},
		},
	}
}

// ongoing are rows of a TCP connection and a UDP flow that stay open between steps.
func ongoing(row spec.Row) []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"tcp", "udp"} {
		r := row
		r.From, r.To, r.Proto, r.Conn = "b2", spec.HostAt("a1", 8080), proto, proto
		if r.Choice != "" {
			r.Choice += ", " + proto
		}
		rows = append(rows, r)
	}
	return rows
}

// eachFlow does something in each family with a socket of b2 and one of a1.
func eachFlow(do func(ctx context.Context, w spec.World, f lab.Family, b2, a1 *Socket) error) func(context.Context,
	spec.World) error {
	return EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
		if err := w.Settle(ctx); err != nil { // the pods, or what was done last for the other family
			return err
		}
		b2, err := OpenSocket(ctx, w, "b2", f)
		if err != nil {
			return err
		}
		defer b2.Close()
		a1, err := OpenSocket(ctx, w, "a1", f)
		if err != nil {
			return err
		}
		defer a1.Close()
		return do(ctx, w, f, b2, a1)
	})
}

// oneWay sends from one socket of b2 to one of a1 that never answers: while that is allowed, denied, and allowed again.
func oneWay(ctx context.Context, w spec.World, f lab.Family, from, to *Socket) error {
	for i, change := range []spec.Action{
		Apply(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))), Apply(policy("p", pod("a1"), ingress())),
		Delete("NetworkPolicy", "p"),
	} {
		if err := change.Run(ctx, w); err != nil {
			return &spec.HarnessError{Err: err}
		}
		if err := w.Settle(ctx); err != nil {
			return err
		}
		text := fmt.Sprintf("datagram %d", i)
		if err := from.Send(to.Addr(), text); err != nil {
			return err
		}
		// A fence: what was sent to this node before the rows has arrived when they have been answered.
		if err := w.Expect(ctx, open("b1", "b2")...); err != nil {
			return err
		}
		heard, err := to.Heard()
		if err != nil {
			return err
		}
		if got, wanted := slices.Contains(heard, text), i != 1; got != wanted {
			return fmt.Errorf("%s, after %s: arrived=%t, want %t", f, change.Name, got, wanted)
		}
	}
	return nil
}
