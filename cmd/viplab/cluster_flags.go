// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
)

// clusterFlags select the kind of cluster to build.
type clusterFlags struct{ ip, overlay, pods string }

func (f *clusterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.ip, "ip", "dual", "IP families: 4, 6 or dual")
	flags.StringVar(&f.overlay, "overlay", "auto", "how pod traffic crosses between nodes: auto, ipip, vxlan or direct")
	flags.StringVar(&f.pods, "pods", "bridge", "how a node wires its pods: bridge or routed")
	complete(cmd, "ip", "4", "6", "dual")
	complete(cmd, "overlay", "auto", "ipip", "vxlan", "direct")
	complete(cmd, "pods", "bridge", "routed")
}

// set copies the choices into options. The error joins all mistakes.
func (f *clusterFlags) set(o *engine.Options) error {
	var errs [3]error
	o.Stack, errs[0] = lab.ParseStack(f.ip)
	o.Overlay, errs[1] = lab.ParseOverlay(f.overlay)
	o.PodNetwork, errs[2] = lab.ParsePodNetwork(f.pods)
	return errors.Join(inFlag("ip", errs[0]), inFlag("overlay", errs[1]), inFlag("pods", errs[2]))
}

// inFlag names the flag that an error is about.
func inFlag(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", flag, err)
}

// matching compiles the regular expression of a flag. An empty one gives nil, which matches everything.
func matching(flag, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	r, err := regexp.Compile(text)
	return r, inFlag(flag, err)
}

// arguments returns command-line flags that make the same choices.
func (f *clusterFlags) arguments() []string {
	return []string{"--ip", f.ip, "--overlay", f.overlay, "--pods", f.pods}
}

// complete offers values for a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	offer := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc(flag, offer) // fails for an unknown flag
}
