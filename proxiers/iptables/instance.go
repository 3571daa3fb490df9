package iptables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/proxiers/internal/conntrack"
	"github.com/viplab/viplab/proxiers/internal/tune"
	"github.com/viplab/viplab/suite/spec"
)

// routeLocalnet makes 127.0.0.0/8 routable, so that a packet to 127.0.0.1 can be translated and leave the node.
const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// instance is the proxier on one node.
type instance struct {
	node     spec.Node
	families []*family
	sysctls  tune.Sysctls
}

// tune makes the settings that the rules rely on.
func (in *instance) tune() error {
	settings := conntrack.Timeouts()
	if slices.ContainsFunc(in.families, func(f *family) bool { return f.rules.localhost }) {
		settings = append(settings, netns.Setting{Key: routeLocalnet, Value: "1"})
	}
	return in.sysctls.Set(in.node.Host.NS, settings...)
}

// Apply implements spec.Instance. The families go their own ways: one that fails does not hold up the other.
func (in *instance) Apply(ctx context.Context, want *kube.Snapshot) error {
	return in.each(func(f *family) error { return f.apply(ctx, want) })
}

// Dump implements spec.Instance.
func (in *instance) Dump(ctx context.Context, w io.Writer) error {
	for _, f := range in.families {
		text, err := f.dump(ctx)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements spec.Instance.
func (in *instance) Stop(ctx context.Context) error {
	err := in.each(func(f *family) error { return f.remove(ctx) })
	return errors.Join(err, in.sysctls.Restore(in.node.Host.NS))
}

// each does something for all families at once.
func (in *instance) each(do func(*family) error) error {
	errs := make([]error, len(in.families))
	var all sync.WaitGroup
	for i, f := range in.families {
		all.Go(func() {
			if err := do(f); err != nil {
				errs[i] = fmt.Errorf("%s: IP%s: %w", in.node.Name, f.ip, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
