export {subscribePartitioned, type PartitionedOptions, type PartitionState, type PartitionStore} from "./partitions.js"
export {SnapshotConsumer, startFrom, type Snapshot, type SnapshotOptions, type SnapshotStore} from "./snapshot.js"
