// SPDX-License-Identifier: Apache-2.0

// Package clusterip is a small proxier that viplab judges: it serves ClusterIPs with one nftables table per IP family.
// Package model says which endpoints a port leads to; this package renders them and gives them to nft.
package clusterip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// Proxier is the proxier. Its zero value is ready.
type Proxier struct{}

// Name implements spec.Proxier.
func (Proxier) Name() string { return "clusterip" }

// Features implements spec.Proxier. Scenarios that need others are skipped.
func (Proxier) Features() spec.FeatureSet {
	return spec.Features(spec.ClusterIP, spec.ITPLocal, spec.TerminatingFallback, spec.Topology, spec.SCTP,
		spec.SourceAddress, spec.InKernel, spec.KernelNAT, spec.RandomSpread, spec.Cleanup)
}

// Usable implements spec.Proxier.
func (Proxier) Usable(context.Context, ...lab.Family) error {
	if _, err := exec.LookPath("nft"); err != nil {
		return &spec.UnusableError{Missing: "the program nft", Cure: "install the package nftables"}
	}
	return nil
}

// Other implements spec.Proxier: there is one mode.
func (Proxier) Other() spec.Proxier { return nil }

// Start implements spec.Proxier.
func (Proxier) Start(_ context.Context, node spec.Node) (spec.Instance, error) {
	if node.Config.MasqueradeAll {
		return nil, &spec.UnusableError{Missing: "masqueradeAll", Cure: "implement it"}
	}
	i := &instance{node: node}
	for _, f := range node.Families {
		i.builders = append(i.builders, model.NewBuilder(node.Name, f))
	}
	return i, nil
}

// instance is the proxier on one node.
type instance struct {
	spec.Undisturbed
	node     spec.Node
	builders []*model.Builder // one per IP family
	last     string           // what nft has got
}

// Apply implements spec.Instance. nft returns when the kernel uses the new rules.
func (i *instance) Apply(ctx context.Context, want *store.Snapshot) error {
	var text strings.Builder
	for k, b := range i.builders {
		render(&text, i.node.Families[k], b.Build(want))
	}
	if text.String() == i.last {
		return nil
	}
	if err := i.nft(ctx, text.String()); err != nil {
		return err
	}
	i.last = text.String()
	return nil
}

// nft gives commands to nft in the network namespace of the node.
func (i *instance) nft(ctx context.Context, commands string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := i.node.Host.Run(cmd); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output.String())
	}
	return nil
}

// Dump implements spec.Instance.
func (i *instance) Dump(ctx context.Context, w io.Writer) error {
	cmd := exec.CommandContext(ctx, "nft", "list", "ruleset")
	cmd.Stdout, cmd.Stderr = w, w
	return i.node.Host.Run(cmd)
}

// Stop implements spec.Instance.
func (i *instance) Stop(ctx context.Context) error { return i.Cleanup(ctx) }

// Kill implements spec.Instance: there are no sockets or children, and the rules stay.
func (*instance) Kill(context.Context) error { return nil }

// Cleanup implements spec.Instance.
func (i *instance) Cleanup(ctx context.Context) (err error) {
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		err = errors.Join(err, i.nft(ctx, fmt.Sprintf(remove, words[f].table)))
	}
	return err
}
