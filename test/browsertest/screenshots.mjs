// Takes the pictures of the README: node screenshots.mjs CONSOLE_URL FOLDER, with the browser of CHROMIUM.
import {chromium} from 'playwright-core';

const [url, folder] = process.argv.slice(2);
const enough = 60_000; // ms of load for the plots
const topic = 'orders.placed';

const browser = await chromium.launch({executablePath: process.env.CHROMIUM, headless: true, chromiumSandbox: process.getuid?.() !== 0});
const page = await browser.newPage({viewport: {width: 1280, height: 800}});
await page.goto(`${url}#/`);
await page.waitForTimeout(enough);
await page.screenshot({path: `${folder}/console-overview.png`});
await page.goto(`${url}#/topics/${topic}/events`);
await page.locator('.events .disclose').nth(1).click();
await page.locator('.payload').waitFor();
await page.screenshot({path: `${folder}/console-events.png`});
await browser.close();
