// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
)

func newTrace() *cobra.Command {
	var of placeFlags
	var args live.TraceArgs
	var show traceOutput
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

It does not show the programs of userspace relays, eBPF, tc, and, of the rules, those on pods and other machines
than nodes. Before Linux 6.17 the kernel does not tell the state of connections.

Exit code: 0 if there was an answer, 1 if not.`,
		Example: `  viplab trace client n1:30080
  viplab trace web-0 svc/backend --reply
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
				t, err := readTrace(words[0])
				if err != nil {
					return err
				}
				return show.print(cmd.OutOrStdout(), t, other)
			}
			l, err := of.lab.find()
			if err != nil {
				return err
			}
			args.From, args.To = of.place(words[0]), words[1]
			var traced live.Traced
			if err := ask(cmd.Context(), l, live.Trace, args, &traced); err != nil {
				return err
			}
			return show.print(cmd.OutOrStdout(), &traced, other)
		},
	}
	of.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&args.Proto, "proto", "", "tcp or udp (default: what the port of the Service or pod says, else tcp)")
	flags.StringVar(&args.IP, "ip", "", "IP family: 4 or 6 (default: the lab's first)")
	flags.BoolVar(&args.Reply, "reply", false, "also follow the TCP segment that answers")
	show.add(cmd)
	complete(cmd, "proto", "tcp", "udp")
	complete(cmd, "ip", "4", "6")
	return cmd
}
