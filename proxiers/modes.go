// SPDX-License-Identifier: Apache-2.0

package proxiers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strings"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// mode is a proxier that takes over nodes from another one, as the modes of kube-proxy do. Unlike kube-proxy, which
// begins by clearing the node, it takes away what the other one has left once its own rules are in place, so that the
// node serves all the time.
type mode struct {
	spec.Proxier
	other spec.Proxier
	// mine and left are what nft prints among the chains of a node that this one has programmed, and the other one.
	mine, left string
}

var _ spec.Switcher = mode{}

// newModes makes two proxiers modes of each other. Each comes with what nft prints of its chains.
func newModes(a spec.Proxier, chainsOfA string, b spec.Proxier, chainsOfB string) (spec.Proxier, spec.Proxier) {
	return mode{a, b, chainsOfA, chainsOfB}, mode{b, a, chainsOfB, chainsOfA}
}

func (m mode) Features() spec.FeatureSet {
	all := maps.Clone(m.Proxier.Features())
	all[spec.ModeSwitch] = true
	return all
}

// Other implements spec.Switcher.
func (m mode) Other() spec.Proxier { return mode{m.other, m.Proxier, m.left, m.mine} }

func (m mode) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	in, err := m.Proxier.Start(ctx, node)
	if err != nil {
		return nil, err
	}
	return &successor{Instance: in, mode: m, node: node}, nil
}

// successor is an instance on a node where the other mode may have been.
type successor struct {
	spec.Instance
	mode mode
	node spec.Node
	done bool // the node is ours alone
}

// Unwrap is the instance without what is done for the other mode.
func (s *successor) Unwrap() spec.Instance { return s.Instance }

func (s *successor) Apply(ctx context.Context, want *store.Snapshot) error {
	if err := s.Instance.Apply(ctx, want); err != nil || s.done {
		return err
	}
	if err := s.mode.clear(ctx, s.node); err != nil {
		return fmt.Errorf("%s: take over from %s: %w", s.node.Name, s.mode.other.Name(), err)
	}
	s.done = true
	return nil
}

// clear takes away what the other mode has left.
func (m mode) clear(ctx context.Context, node spec.Node) error {
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", "list", "chains")
	cmd.Stdout, cmd.Stderr = &out, &stderr
	switch err := node.Host.Run(cmd); {
	case errors.Is(err, exec.ErrNotFound):
		return nil // the other one cannot have been here without it, or has left what is not nft's to show
	case err != nil:
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	case !strings.Contains(out.String(), m.left):
		return nil
	}
	former, err := m.other.Start(ctx, node)
	if err != nil {
		return err
	}
	return former.Stop(ctx) // which takes away what a former life of it has left as well
}
