package codec

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// PositionsOf reads positions as JSON has them: by the names of partitions. Where none is named, they
// stand for all of the topic; nil are none.
func PositionsOf(in map[string]uint64) (map[int]uint64, *wire.Error) {
	if in == nil {
		return nil, nil
	}
	positions := make(map[int]uint64, len(in))
	for name, seq := range in {
		p, err := strconv.Atoi(name)
		if err != nil || p < 0 || strconv.Itoa(p) != name {
			return nil, wire.Errorf(wire.BadRequest, "positions: %s is not the number of a partition", shown(name))
		}
		if seq > wire.MaxPosition {
			return nil, wire.Errorf(wire.BadRequest, "positions: partition %d: no seq is that high", p)
		}
		positions[p] = seq
	}
	return positions, nil
}

// ParsePositions reads a JSON object of positions.
func ParsePositions(text []byte) (map[int]uint64, *wire.Error) {
	var in map[string]uint64
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, wire.Errorf(wire.BadRequest, "positions must be an object of whole numbers by partition, such as {\"0\":1042}")
	}
	return PositionsOf(in)
}

// AppendPositions appends positions as a JSON object, by partition.
func AppendPositions(dst []byte, positions map[int]uint64) []byte {
	dst = append(dst, '{')
	for i, p := range slices.Sorted(maps.Keys(positions)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(strconv.AppendInt(append(dst, '"'), int64(p), 10), `":`...)
		dst = strconv.AppendUint(dst, positions[p], 10)
	}
	return append(dst, '}')
}
