// SPDX-License-Identifier: Apache-2.0

// Package none is a proxier that does nothing and claims every feature. A scenario that passes on it proves nothing
// about a proxier, so the suite uses it to show that its scenarios can fail.
package none

import (
	"context"
	"fmt"
	"io"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// New returns the proxier that does nothing.
func New() spec.Proxier { return proxier{} }

type proxier struct{}

func (proxier) Name() string                                { return "none" }
func (proxier) Features() spec.FeatureSet                   { return spec.Features(spec.AllFeatures()...) }
func (proxier) Usable(context.Context, ...lab.Family) error { return nil }

// Other implements spec.Proxier. A proxier that does nothing is its own other mode.
func (p proxier) Other() spec.Proxier { return p }

func (proxier) Start(context.Context, spec.Node) (spec.Instance, error) { return instance{}, nil }

type instance struct{ spec.Undisturbed }

func (instance) Apply(context.Context, *store.Snapshot) error { return nil }
func (instance) Stop(context.Context) error                   { return nil }
func (instance) Kill(context.Context) error                   { return nil }
func (instance) Cleanup(context.Context) error                { return nil }

func (instance) Dump(_ context.Context, w io.Writer) error {
	_, err := fmt.Fprintln(w, "nothing")
	return err
}
