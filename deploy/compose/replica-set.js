// Makes the three servers of compose.yaml a replica set and waits until it has a primary, which takes writes from then on.
// Run in mongosh, connected to the first of them.
const members = ["mongo1:27017", "mongo2:27017", "mongo3:27017"];

function made() {
  try {
    return rs.status().ok === 1;
  } catch (e) {
    if (e.codeName === "NotYetInitialized") return false;
    throw e;
  }
}

if (!made()) {
  rs.initiate({_id: "rs0", members: members.map((host, _id) => ({_id, host}))});
}
for (let seconds = 0; ; seconds++) {
  const primary = rs.status().members.find((m) => m.stateStr === "PRIMARY");
  if (primary) {
    print(`${primary.name} is the primary`);
    break;
  }
  if (seconds === 60) throw new Error("the replica set has no primary after a minute");
  sleep(1000);
}
