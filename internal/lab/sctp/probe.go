// SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"

	"github.com/viplab/viplab/lab/traffic"
)

// Probe opens an association as a probe says, whose Proto and Fences it does not read. It waits for an answer until the
// context ends, since it does not see ICMP errors.
func Probe(ctx context.Context, p traffic.Probe) traffic.Answer {
	if err := Available(); err != nil {
		return traffic.Answer{Fault: err}
	}
	a, err := Dial{From: p.From, To: p.To, Source: p.Source.Addr()}.Do(ctx)
	answer := traffic.Answer{Source: a.Source}
	switch {
	case err == nil:
		answer.Outcome = traffic.Reply
		answer.Server, answer.Peer, answer.Local = a.Server, a.Peer, a.Local
	case !a.Source.IsValid():
		answer.Outcome, answer.Detail = traffic.Unreachable, err.Error()
	case ctx.Err() != nil:
		answer.Outcome = traffic.Silence
	default: // an answer that is no association
		answer.Outcome, answer.Detail = traffic.Refused, err.Error()
	}
	return answer
}
