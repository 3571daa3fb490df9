// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
)

func newTrace() *cobra.Command {
	var of placeFlags
	var args live.TraceArgs
	var show traceOutput
	var count int
	cmd := &cobra.Command{
		Use:   "trace FROM TO | trace FILE",
		Short: "Send one real request in a lab, and follow its first packet through devices and rules",
		Long: `trace sends one request, as probe does, and prints what its first packet meets on the sender, the nodes and
the router: each device, each rule of any program that matches, with hook, priority, table, annotation and verdict, and
after each change the packet with its mark and the state of its connection. * is before what has changed.

FROM and TO are those of probe. Nothing is added to tables of others, and what trace adds is removed again. The rules
count the packets of the request as they count all packets.

-o html writes one page to step through, -o pcapng the packets with what happened to each as a comment, and -o json all
of it; FILE, which -o json has written, is printed as if it had just been traced.

It says what it could not see. It does not show what eBPF and tc do, and the rules of pods and of other machines than
nodes. In a terminal it uses colours, unless NO_COLOR is set.

Exit code: 0 if there was an answer, 1 if not.`,
		Example: `  viplab trace client n1:30080
  viplab trace web-0 svc/backend --reply --brief
  viplab trace web-0 n2 --proto icmp
  viplab trace client n1:30080 --reply -o html > trace.html
  viplab trace n2 kube-system/kube-dns -o json > before.json
  viplab trace n2 kube-system/kube-dns --compare before.json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: of.complete(2),
		RunE: func(cmd *cobra.Command, words []string) error {
			other, err := show.check()
			if err != nil {
				return err
			}
			if len(words) == 1 {
				all, err := readTraces(words[0])
				if err != nil {
					return err
				}
				if other != nil && len(all) > 1 {
					return fmt.Errorf("%s: want one trace with --compare, not %d", words[0], len(all))
				}
				return show.print(cmd.OutOrStdout(), other, all...)
			}
			l, err := of.lab.find()
			if err != nil {
				return err
			}
			args.From, args.To = of.place(words[0]), words[1]
			if count < 1 {
				return fmt.Errorf("--count: want 1 or more, not %d", count)
			}
			if count > 1 && other != nil {
				return errors.New("--count: want 1 with --compare")
			}
			return traceMany(cmd, l, args, count, &show, other)
		},
	}
	of.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&args.Proto, "proto", "",
		"tcp, udp, sctp or icmp (default: what the port of the Service or pod says, else tcp)")
	flags.IntVar(&args.Payload, "payload", 0, "bytes to send with the request; a datagram of 2000 has fragments")
	flags.IntVar(&count, "count", 1, "how many requests to send and to trace, one after the other")
	flags.StringVar(&args.IP, "ip", "", "IP family: 4 or 6 (default: the lab's first)")
	flags.BoolVar(&args.Reply, "reply", false, "also follow the packet that answers")
	show.add(cmd)
	complete(cmd, "proto", "tcp", "udp", "sctp", "icmp")
	complete(cmd, "ip", "4", "6")
	return cmd
}

// traceMany sends and traces requests one after the other. It fails if one of them fails or is not answered.
func traceMany(cmd *cobra.Command, l registry.Folder, args live.TraceArgs, count int, show *traceOutput,
	other *live.Traced) error {
	var unanswered error
	var all []*live.Traced
	for i := range count {
		var traced live.Traced
		if err := ask(cmd.Context(), l, live.Trace, args, &traced); err != nil {
			return err
		}
		if !show.streams() {
			all = append(all, &traced)
			continue
		}
		if i > 0 && show.format == "text" {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		unanswered = cmp.Or(unanswered, show.print(cmd.OutOrStdout(), other, &traced))
	}
	if show.streams() {
		return unanswered
	}
	return show.print(cmd.OutOrStdout(), other, all...)
}
