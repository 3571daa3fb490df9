package lab

import (
	"sync"

	"github.com/viplab/viplab/lab/link"
)

// exit is where pods leave a node. The kernel takes about as long for many links as for one, so whoever comes while it is at
// work waits, and all who wait leave together.
type exit struct {
	turn sync.Mutex // held by the one who has the kernel delete links

	mu    sync.Mutex
	queue []*departure
}

// departure is the link of one pod, to be deleted.
type departure struct {
	port link.Dev
	gone bool // written and read by who has the turn
	err  error
}

// exitGroup is the group of the links that are about to be deleted.
const exitGroup = 1

// unplug deletes a pod's veth, both ends. It may be called for many pods of the node at once.
func (n *Node) unplug(p *Pod) error {
	d := &departure{port: p.port()}
	n.exit.mu.Lock()
	n.exit.queue = append(n.exit.queue, d)
	n.exit.mu.Unlock()
	n.exit.turn.Lock()
	defer n.exit.turn.Unlock()
	if !d.gone { // nobody has taken it along
		n.unplugAll(n.exit.takeQueue())
	}
	return d.err
}

func (e *exit) takeQueue() []*departure {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.queue
	e.queue = nil
	return all
}

// unplugAll deletes links with one request. The caller has the turn.
func (n *Node) unplugAll(all []*departure) {
	var ops []link.Op
	for _, d := range all {
		ops = append(ops, link.Group{Dev: d.port, Group: exitGroup})
	}
	err := link.Apply(n.NS, append(ops, link.DeleteGroup(exitGroup))...)
	for _, d := range all {
		d.gone, d.err = true, err
	}
}
