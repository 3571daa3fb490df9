// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/live"
)

func newProbe() *cobra.Command {
	var of placeFlags
	var args live.ProbeArgs
	var output outputFlag
	var udp bool
	cmd := &cobra.Command{
		Use:   "probe FROM TO",
		Short: "Send one real request in a lab, and print what became of it and the path of its first packet",
		Long: `probe sends one request from a node, a pod, the client or the router. It prints the outcome (Reply,
Refused, Unreachable, Reset or Silence), the server that answered, the address that the server saw, and each
device that the first packet passed, with its addresses there.

TO is a Service or a pod, NAME[:PORT], also with svc/ or pod/ before it; a machine, n1:30080; or an address.

Exit code: 0 if there was an answer, 1 if not.`,
		Example: `  viplab probe client n1:30080
  viplab probe web-0 svc/backend
  viplab probe n2 10.96.0.10:53 --udp`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: of.completeProbe,
		RunE: func(cmd *cobra.Command, words []string) error {
			if err := output.check(); err != nil {
				return err
			}
			l, err := of.lab.find()
			if err != nil {
				return err
			}
			args.From, args.To = of.place(words[0]), words[1]
			if udp {
				args.Proto = "udp"
			}
			var probed live.Probed
			if err := ask(cmd.Context(), l, live.Probe, args, &probed); err != nil {
				return err
			}
			return printProbed(cmd.OutOrStdout(), output.format, &probed)
		},
	}
	of.add(cmd)
	output.add(cmd)
	cmd.Flags().BoolVar(&udp, "udp", false, "send UDP (default: what the port of the Service or pod says, else TCP)")
	cmd.Flags().StringVar(&args.IP, "ip", "", "IP family: 4 or 6 (default: the lab's first)")
	complete(cmd, "ip", "4", "6")
	return cmd
}

// printProbed prints what became of a request. It fails with exit code 1 if there was no answer.
func printProbed(w io.Writer, format string, p *live.Probed) (err error) {
	if format == "" {
		err = p.Print(w)
	} else {
		err = encode(w, format, p)
	}
	if err == nil && !p.Answered() {
		err = exitCode(1)
	}
	return err
}

func newConntrack() *cobra.Command {
	var of placeFlags
	var args live.ConntrackArgs
	var format string
	cmd := &cobra.Command{
		Use:   "conntrack NODE",
		Short: "Print the connection tracking of a node of a lab",
		Long: `conntrack prints the flows that a node tracks: the first packet as it came in, and behind | the expected
reply. Where the two are not the reverse of each other, the node translates addresses.`,
		Example: `  viplab conntrack n1
  viplab conntrack n1 --follow -o json | jq -r 'select(.dnat) | .reply.source'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: of.lab.completeNodes,
		RunE: func(cmd *cobra.Command, words []string) error {
			if format != "text" && format != "json" {
				return fmt.Errorf("--output: %q: want text or json", format)
			}
			l, err := of.lab.find()
			if err != nil {
				return err
			}
			args.Node, args.JSON = words[0], format == "json"
			return ask(cmd.Context(), l, live.Conntrack, args, nil)
		},
	}
	of.lab.add(cmd)
	cmd.Flags().BoolVarP(&args.Follow, "follow", "f", false, "print every change, until Ctrl-C")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, or json: an object a line")
	complete(cmd, "output", "text", "json")
	return cmd
}

func newCapture() *cobra.Command {
	var of placeFlags
	var args live.CaptureArgs
	cmd := &cobra.Command{
		Use:   "capture NODE[/DEVICE]",
		Short: "Print the packets at a node, a pod or another machine of a lab",
		Long: `capture prints the IP packets at all devices of a machine, or at one device, until Ctrl-C. "lan" is the
switch between the machines.`,
		Example: `  viplab capture n1
  viplab capture n1/cni0 --match 10.96.0.10
  viplab capture n2 --pcapng | wireshark -k -i -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: of.complete(1),
		RunE: func(cmd *cobra.Command, words []string) error {
			l, err := of.lab.find()
			if err != nil {
				return err
			}
			args.Place = of.place(strings.TrimSuffix(words[0], "/"))
			return ask(cmd.Context(), l, live.Capture, args, nil)
		},
	}
	of.add(cmd)
	cmd.Flags().BoolVar(&args.Pcapng, "pcapng", false, "write pcapng, for Wireshark, to the standard output")
	cmd.Flags().IntVar(&args.Count, "count", 0, "end after this many packets")
	cmd.Flags().StringVar(&args.Match, "match", "", "only packets whose line of text contains this")
	return cmd
}
