// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/viplab/viplab/internal/suite/engine"
)

// Start builds a lab for this program alone: no command finds it. builder is what ServeBuilds has returned on the
// machine. The lab works until the context ends or Close.
func Start(ctx context.Context, builder *os.File, c Config) (*Lab, error) {
	ctx, end := context.WithCancel(ctx)
	l := &Lab{name: c.Name, began: time.Now(), end: end}
	if err := l.start(ctx, c, newBuilds(builder)); err != nil {
		end()
		return nil, err
	}
	if err := l.open(ctx); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

// Close ends the programs on the nodes and removes the lab.
func (l *Lab) Close(ctx context.Context) error {
	l.end()
	return errors.Join(l.api.Close(), l.standing.Close(context.WithoutCancel(ctx)))
}

// Standing returns the cluster with its programs.
func (l *Lab) Standing() *engine.Standing { return l.standing }

// Kubeconfig returns a kubeconfig for programs inside the lab: it names the address of the first node.
func (l *Lab) Kubeconfig() []byte { return l.inside.Kubeconfig() }
